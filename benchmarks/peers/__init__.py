"""`ghostless bench peers`: the cost of a request on this server and on other servers with the same graph."""

from benchmarks.peers.command import bench

__all__ = ["bench"]
