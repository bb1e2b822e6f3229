"""KuaiRec (Gao et al., CIKM 2022): an almost fully observed user-video matrix of watch ratios.

Original layout: big_matrix.csv or small_matrix.csv. Also supported: a text file without header with user, video and
watch_ratio (random.txt), which has no duration.
"""

from pathlib import Path

from learning.data.columns import clip, clipped_share, numbers, values
from learning.data.files import read_csv
from learning.data.table import Table
from learning.data.video import DURATION, USER, VIDEO, WATCH_RATIO
from learning.errors import DataError
from learning.schema import Schema, Type

_NAMES = ("big_matrix.csv", "small_matrix.csv", "random.txt")


def load_kuairec(path: Path) -> Table:
    """Read the matrix in a file, or the only one in a folder; watch_ratio in [0, 3]."""
    if path.is_dir():
        found = [path / name for name in _NAMES if (path / name).is_file()]
        if len(found) != 1:
            held = " and ".join(file.name for file in found) or "none"
            raise DataError(f"{path}: expected one of {', '.join(_NAMES)} in it, found {held}; name the file")
        path = found[0]
    # Names in the file by names in the schema; the file's durations are also in milliseconds.
    stored = {"user_id": "user_id", "video_id": "video_id", "duration_ms": "video_duration"}
    header = None
    schema = Schema((USER, VIDEO, DURATION), WATCH_RATIO)
    if path.suffix == ".txt":
        header = ("user_id", "video_id", "watch_ratio")
        schema = Schema((USER, VIDEO), WATCH_RATIO)
    types: dict[str, Type] = {stored[feature.name]: feature.type for feature in schema.features}
    read = read_csv(path, {**types, "watch_ratio": "float32"}, header)
    columns = {
        feature.name: values(read[stored[feature.name]], stored[feature.name], feature.type, path)
        for feature in schema.features
    }
    ratio = numbers(read["watch_ratio"], "watch_ratio", path)
    return Table(schema, columns, clip(ratio, WATCH_RATIO), clipped_share(ratio, WATCH_RATIO))
