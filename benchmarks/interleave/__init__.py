"""`ghostless bench interleave`: compares the servers of two checkouts under the same load, in turns."""

from benchmarks.interleave.command import bench

__all__ = ["bench"]
