"""KuaiRand (Gao et al., CIKM 2022): the standard logs of a short-video feed.

Original layout: DIR/log_standard_*.csv (or DIR/data/...), with DIR/video_features_basic*.csv for the duration if a log
lacks it. The log of the random intervention (log_random_*.csv) was recorded under a different policy and is not read. A
repackaged layout is also supported: DIR/val.parquet and DIR/test.parquet.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learning.data.columns import clip, clipped_share, numbers, require, values
from learning.data.files import csv_header, read_csv, read_parquet
from learning.data.table import Array, Table, concatenate
from learning.data.video import VIDEO_SCHEMA
from learning.errors import DataError
from learning.schema import Type

_LOG_TYPES: dict[str, Type] = {
    "user_id": "int64",
    "video_id": "int64",
    "play_time_ms": "float32",
    "duration_ms": "float32",
}


def load_kuairand(folder: Path) -> Table:
    """Read the logs: identical rows and rows with duration 0 are dropped, watch_ratio = play_time_ms / duration_ms in
    [0, 3]."""
    if not folder.is_dir():
        raise DataError(f"{folder}: not a folder; expected the folder with log_standard_*.csv")
    place = folder / "data" if (folder / "data").is_dir() else folder
    logs = sorted(place.glob("log_standard_*.csv"))
    repackaged = [path for name in ("val.parquet", "test.parquet") if (path := place / name).is_file()]
    if not logs and not repackaged:
        raise DataError(f"{folder}: has neither log_standard_*.csv nor val.parquet and test.parquet")
    return concatenate([_log(path) for path in logs or repackaged])


def _log(path: Path) -> Table:
    """Read one log. Each file covers separate days, so identical rows are always in the same file."""
    if path.suffix == ".csv":
        types = dict(_LOG_TYPES)
        if "duration_ms" not in csv_header(path):
            del types["duration_ms"]
        log = read_csv(path, types, all_columns=True)
    else:
        log = read_parquet(path)
    require(("user_id", "video_id", "play_time_ms"), log.column_names, path)
    if "duration_ms" not in log.column_names:
        log = log.append_column("duration_ms", _durations(log["video_id"], path))
    play_ms = numbers(log["play_time_ms"], "play_time_ms", path)
    duration_ms = numbers(log["duration_ms"], "duration_ms", path)
    kept = _first_occurrences(log)
    kept = kept[duration_ms[kept] > 0]
    columns = {
        feature.name: values(log[feature.name], feature.name, feature.type, path)[kept]
        for feature in VIDEO_SCHEMA.features
    }
    ratio, target = play_ms[kept] / duration_ms[kept], VIDEO_SCHEMA.target
    return Table(VIDEO_SCHEMA, columns, clip(ratio, target), clipped_share(ratio, target))


def _first_occurrences(log: pa.Table) -> Array:
    """Positions of the rows that are not a copy of an earlier one."""
    numbered = log.append_column("row number", pa.array(np.arange(log.num_rows)))
    first = numbered.group_by(log.column_names).aggregate([("row number", "min")])
    positions: Array = np.sort(first["row number_min"].to_numpy())
    return positions


def _durations(video_ids: pa.ChunkedArray, log: Path) -> pa.ChunkedArray:
    found = sorted(log.parent.glob("video_features_basic*.csv"))
    if not found:
        raise DataError(f"{log}: no column 'duration_ms', and no video_features_basic*.csv in the same folder")
    videos = read_csv(found[0], {"video_id": "int64", "video_duration": "float32"})
    place = pc.index_in(video_ids, value_set=videos["video_id"])
    # A video without a known duration gets duration 0, and its rows are dropped with all others of duration 0.
    return pc.fill_null(videos["video_duration"].take(place), 0.0)
