"""`ghostless bench serve`: the measurements behind the serving claims."""

from benchmarks.serve.command import bench

__all__ = ["bench"]
