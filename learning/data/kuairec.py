"""KuaiRec (Gao et al., CIKM 2022): an almost fully observed user-video matrix of watch ratios.

Original layout: big_matrix.csv or small_matrix.csv. Read too: a headerless text of user, video, watch_ratio
(random.txt), which has no duration.
"""

from pathlib import Path

from learning.data.columns import clip_target, refuse_missing, values
from learning.data.files import read_csv
from learning.data.table import Table
from learning.data.video import DURATION, USER, VIDEO, WATCH_RATIO
from learning.errors import DataError
from learning.schema import Schema

_NAMES = ("big_matrix.csv", "small_matrix.csv", "random.txt")


def load_kuairec(path: Path) -> Table:
    """The matrix in a file, or the only one in a folder; watch_ratio in [0, 3]."""
    if path.is_dir():
        found = [path / name for name in _NAMES if (path / name).is_file()]
        if len(found) != 1:
            held = " and ".join(file.name for file in found) or "none"
            raise DataError(f"{path}: expected one of {', '.join(_NAMES)} in it, found {held}; name the file")
        path = found[0]
    if path.suffix == ".txt":
        schema = Schema((USER, VIDEO), WATCH_RATIO)
        header = ("user_id", "video_id", "watch_ratio")
        read = read_csv(
            path, {"user_id": "int64", "video_id": "int64", "watch_ratio": "float32"}, header=header
        )
    else:
        schema = Schema((USER, VIDEO, DURATION), WATCH_RATIO)
        read = read_csv(
            path,
            {"user_id": "int64", "video_id": "int64", "video_duration": "float32", "watch_ratio": "float32"},
        )
    stored = {"duration_ms": "video_duration"}
    columns = {
        feature.name: values(
            read[stored.get(feature.name, feature.name)],
            stored.get(feature.name, feature.name),
            feature.type,
            path,
        )
        for feature in schema.features
    }
    refuse_missing(read["watch_ratio"], "watch_ratio", path)
    target = clip_target(read["watch_ratio"].to_numpy(), WATCH_RATIO, "watch_ratio", path)
    return Table(schema, columns, target)
