"""`ghostless bench own`: rankers of others under our heads."""

from benchmarks.own.command import bench

__all__ = ["bench"]
