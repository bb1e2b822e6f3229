"""`ghostless bench serve`: the measurements behind the serving claims."""

from serving.bench.command import bench

__all__ = ["bench"]
