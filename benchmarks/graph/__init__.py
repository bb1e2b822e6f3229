"""`ghostless bench graph`: what the exported graphs cost and how exact they are."""

from benchmarks.graph.command import bench

__all__ = ["bench"]
