"""WeChat Big Data Challenge 2021: watch times in the Channels feed.

Original layout: DIR/user_action.csv (userid, feedid, play in milliseconds, ...) and DIR/feed_info.csv
(feedid, authorid, videoplayseconds in seconds, ...).
"""

from pathlib import Path

import numpy as np

from learning.data.columns import clip, numbers, values
from learning.data.files import read_csv
from learning.data.table import Table
from learning.data.video import AUTHOR, DURATION, USER, VIDEO, WATCH_RATIO
from learning.errors import DataError
from learning.schema import Schema

WECHAT_SCHEMA = Schema((USER, VIDEO, AUTHOR, DURATION), WATCH_RATIO)


def load_wechat(folder: Path) -> Table:
    """Join every action with its feed; rows of feeds without a length are dropped; watch_ratio in [0, 3]."""
    action_path, feed_path = folder / "user_action.csv", folder / "feed_info.csv"
    action = read_csv(action_path, {"userid": "int64", "feedid": "int64", "play": "float32"})
    feed = read_csv(feed_path, {"feedid": "int64", "authorid": "int64", "videoplayseconds": "float32"})
    play_ms = numbers(action["play"], "play", action_path)
    user_id = values(action["userid"], "userid", "int64", action_path)
    video_id = values(action["feedid"], "feedid", "int64", action_path)
    known = values(feed["feedid"], "feedid", "int64", feed_path)
    author = values(feed["authorid"], "authorid", "int64", feed_path)
    seconds = values(feed["videoplayseconds"], "videoplayseconds", "float32", feed_path)

    order = np.argsort(known, kind="stable")
    place = order[np.minimum(np.searchsorted(known, video_id, sorter=order), len(known) - 1)]
    strange = known[place] != video_id
    if strange.any():
        row = int(strange.argmax())
        raise DataError(
            f"{action_path}: column 'feedid', row {row + 1}: feed {video_id[row]} is not in "
            f"{feed_path.name}; both files must be from the same release"
        )
    duration_ms = seconds[place] * np.float32(1000)
    kept = duration_ms > 0
    ratio = play_ms[kept] / duration_ms[kept]
    columns = {
        "user_id": user_id[kept],
        "video_id": video_id[kept],
        "author_id": author[place][kept],
        "duration_ms": duration_ms[kept],
    }
    return Table(WECHAT_SCHEMA, columns, clip(ratio, WATCH_RATIO))
