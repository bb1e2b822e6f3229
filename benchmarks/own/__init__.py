"""`ghostless bench own`: third-party rankers under our heads."""

from benchmarks.own.command import bench

__all__ = ["bench"]
