"""`ghostless bench graph`: what the exported graphs cost and how exact they are."""

from export.bench.command import bench

__all__ = ["bench"]
