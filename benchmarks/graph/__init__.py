"""`ghostless bench graph`: cost and exactness of the exported graphs."""

from benchmarks.graph.command import bench

__all__ = ["bench"]
