"""The triton engine: the same facade in front of one or many Triton servers."""

from serving.engines.triton.engine import TritonEngine

__all__ = ["TritonEngine"]
