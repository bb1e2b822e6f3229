"""Nodes on values of several networks, stacked: [M, n, width].

Sums are written as products with constants: ONNX Runtime's own mean over the first axis takes ten times as long, and a
sum over the last axis takes twice as long.
"""

from dataclasses import dataclass

import numpy as np

from export.builder import Array, GraphBuilder, Value


@dataclass(frozen=True)
class Stack:
    """value [M, n, width]."""

    value: Value
    members: int
    width: int

    def average(self, g: GraphBuilder, name: str) -> Value:
        """Average over members: [n, width]."""
        by_member = g.reshape(self.value, [self.members, -1])
        return g.reshape(_mean(g, by_member, self.members, f"{name}/flat"), [-1, self.width], name)

    def less(self, g: GraphBuilder, average: Value, name: str) -> "Stack":
        """Each member minus a value [n, width]."""
        return Stack(g.node("Sub", [self.value, average], name), self.members, self.width)

    def mean_square(self, g: GraphBuilder, name: str, weight: float = 1.0) -> Value:
        """weight times the sum of squares over the width, averaged over members: [n]."""
        squares = Stack(g.node("Mul", [self.value, self.value], f"{name}/squares"), self.members, self.width)
        return _mean(g, squares.sums(g, np.full(self.width, weight), f"{name}/sums"), self.members, name)

    def mean_square_sum(self, g: GraphBuilder, weights: Array, name: str) -> Value:
        """The square of the weighted sum over the width, averaged over members: [n]."""
        sums = self.sums(g, weights, f"{name}/sums")
        return _mean(g, g.node("Mul", [sums, sums], f"{name}/squares"), self.members, name)

    def variance(self, g: GraphBuilder, name: str) -> Value:
        """Variance over members, averaged over the width: [n]."""
        apart = self.less(g, self.average(g, f"{name}/average"), f"{name}/apart")
        return apart.mean_square(g, name, 1.0 / self.width)

    def sums(self, g: GraphBuilder, weights: Array, name: str) -> Value:
        """Weighted sum over the width: [M, n]."""
        rows = g.reshape(self.value, [-1, self.width])
        summed = g.node("Gemm", [g.constant(f"{name}/weights", weights[None, :]), rows], name, transB=1)
        return g.reshape(summed, [self.members, -1])


def _mean(g: GraphBuilder, value: Value, members: int, name: str) -> Value:
    """Mean over members: [M, c] -> [c]."""
    return g.node("MatMul", [g.constant(f"{name}/weights", np.full(members, 1.0 / members)), value], name)
