"""`ghostless bench peers`: what a request costs here and on other servers of the same graph."""

from benchmarks.peers.command import bench

__all__ = ["bench"]
