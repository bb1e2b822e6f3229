"""`ghostless bench gates`: TLS, identities, conformance, hostile clients."""

from benchmarks.gates.command import bench

__all__ = ["bench"]
