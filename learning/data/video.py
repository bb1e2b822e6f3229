"""The schema of all short-video sources: user, video, duration, and the watched share of the video."""

from learning.schema import Feature, Schema, Target

USER = Feature("user_id", kind="id", role="context", type="int64", embedding=32)
VIDEO = Feature("video_id", kind="id", role="candidate", type="int64", embedding=32)
AUTHOR = Feature("author_id", kind="id", role="candidate", type="int64", embedding=16)
DURATION = Feature("duration_ms", kind="bucket", role="candidate", type="float32", embedding=16, buckets=100)

WATCH_RATIO = Target("watch_ratio", unit="share of the video's length", low=0.0, high=3.0)

VIDEO_SCHEMA = Schema((USER, VIDEO, DURATION), WATCH_RATIO)
