"""The CR head: closed_forms.categorical as graph nodes."""

import numpy as np

from export.builder import GraphBuilder, Value
from export.cdf_nodes import Moments, sum_segments
from export.split_nodes import VarianceSplit
from export.stack_nodes import Stack
from ghostless.contract import metadata
from ghostless.heads.closed_forms.categorical import PROBIT


def probabilities(g: GraphBuilder, logits: Value, s2: Value | None) -> Value:
    """softmax(m / sqrt(1 + pi/8 s^2)), [.., K], s2 [1, n]; logits are already divided by the temperature T."""
    if s2 is not None:
        # A Gemm multiplies and adds in one node.
        eta, one = (
            g.constant(f"probit/{name}", np.array([[value]])) for name, value in (("eta", PROBIT), ("one", 1.0))
        )
        squared = g.node("Gemm", [eta, s2, one], "probit/squared")
        temperature = g.node("Sqrt", [squared], "probit/temperature")
        # Multiplying by the reciprocals takes half the time of a division.
        inverse = g.reshape(g.node("Reciprocal", [temperature]), [-1, 1], "probit/inverse")
        logits = g.node("Mul", [logits, inverse], "probit/logits")
    return g.node("Softmax", [logits], "probabilities", axis=-1)


def last_layer_variance(g: GraphBuilder, moments: Moments, s2: Value, temperature: float) -> Value:
    """l = s^2 / T^2 sum p_k^2 (y_k - mean)^2, [n]; s2 [n]."""
    squares = g.node("Mul", [moments.weighted, moments.weighted], "sensitivity/squares")
    sensitivity = sum_segments(g, squares, moments.count, "sensitivity", temperature**-2)
    return g.node("Mul", [s2, sensitivity], "last_layer")


def gini_outputs(
    g: GraphBuilder, mass: Value, count: int, s2: Value | None, parts: VarianceSplit | None
) -> dict[str, Value | None]:
    """Histogram.gini of one network's masses [count, n], with s2 [n], divided in the same ratio as the variance. The
    outputs are [n] each; those that a deterministic twin lacks are None."""
    # With q = p (1 - p): total = sum q, because 1 - sum p^2 would cancel when one mass is near 1.
    one = g.constant("one", 1.0)
    spread = g.node("Mul", [mass, g.node("Sub", [one, mass])], "gini/spread")
    total = g.node("Relu", [sum_segments(g, spread, count, "gini/impurity")], "gini/total")
    if s2 is None or parts is None:
        nothing = dict.fromkeys((metadata.CATEGORICAL_EPISTEMIC, metadata.CATEGORICAL_EPISTEMIC_DELTA))
        return {**nothing, metadata.CATEGORICAL_ALEATORIC: total}
    # sum p^2 - 2 sum p^3 + (sum p^2)^2 = 2 sum p q - (1 - total) total
    twice = sum_segments(g, g.node("Mul", [spread, mass]), count, "gini/weighted", 2.0)
    squared = g.node("Mul", [g.node("Sub", [one, total]), total], "gini/squared")
    norm = g.node("Relu", [g.node("Sub", [twice, squared])], "gini/jacobian")
    ratio = g.node("Div", [total, parts.total], "gini/ratio")
    return {
        metadata.CATEGORICAL_ALEATORIC: g.node("Mul", [ratio, parts.aleatoric], "gini/aleatoric"),
        metadata.CATEGORICAL_EPISTEMIC: g.node("Mul", [ratio, parts.epistemic], "gini/epistemic"),
        metadata.CATEGORICAL_EPISTEMIC_DELTA: g.node("Mul", [s2, norm], "gini/delta"),
    }


def member_gini_outputs(g: GraphBuilder, masses: Stack, apart: Stack) -> dict[str, Value]:
    """The Gini outputs of M members: masses [M, n, k - 1], and `apart`, the masses minus their average. The epistemic
    part is the members' disagreement."""
    # Computed from the members' differences: a difference of sums would cancel when they nearly agree.
    disagreement = apart.mean_square(g, "members/categorical")
    own = masses.mean_square(g, "members/own")
    return {
        metadata.CATEGORICAL_ALEATORIC: g.node("Sub", [g.constant("one", 1.0), own], "members/impurity"),
        metadata.CATEGORICAL_EPISTEMIC: disagreement,
        metadata.CATEGORICAL_EPISTEMIC_DELTA: disagreement,
    }
