"""The CR head: closed_forms.categorical as graph nodes."""

from export.builder import GraphBuilder
from export.cdf_nodes import TINY, Moments, split_variance, sum_segments
from ghostless.contract import metadata
from ghostless.heads.closed_forms.categorical import PROBIT


def probabilities(g: GraphBuilder, logits: str, s2: str | None) -> str:
    """softmax(m / sqrt(1 + pi/8 s^2)), [.., K], s2 [1, n]; logits come divided by the temperature T."""
    if s2 is not None:
        eta, one = (g.constant("probit/eta", value) for value in (PROBIT, 1.0))
        temperature = g.node("Sqrt", [g.node("Add", [g.node("Mul", [s2, eta]), one])], "probit/temperature")
        # A product with the reciprocals takes half the time of a division.
        inverse = g.reshape(g.node("Reciprocal", [temperature]), [-1, 1], "probit/inverse")
        logits = g.node("Mul", [logits, inverse], "probit/logits")
    return g.node("Softmax", [logits], "probabilities", axis=-1)


def last_layer_variance(g: GraphBuilder, moments: Moments, s2: str, temperature: float) -> str:
    """l = s^2 / T^2 sum p_k^2 (y_k - mean)^2, [n]; s2 [n]."""
    squares = g.node("Mul", [moments.weighted, moments.weighted], "moments/squares")
    sensitivity = g.squeeze(sum_segments(g, squares, moments.count, "moments/sensitivity", temperature**-2), 0)
    return g.node("Mul", [s2, sensitivity], "moments/delta")


def gini_outputs(g: GraphBuilder, mass: str, count: int, s2: str | None, zero: str) -> dict[str, str]:
    """categorical.gini_decomposition of one network's masses [count, n], with s2 [n]; `zero` [n] for a twin."""
    # With q = p (1 - p): total = sum q, since 1 - sum p^2 would cancel where one mass is near 1.
    spread = g.node("Mul", [mass, g.node("Sub", [g.constant("one", 1.0), mass])], "gini/spread")
    impurity = g.squeeze(sum_segments(g, spread, count, "gini/impurity"), 0)
    total = g.node("Max", [impurity, g.constant("tiny", TINY)], "gini/total")
    if s2 is None:
        nothing = dict.fromkeys((metadata.CATEGORICAL_EPISTEMIC, metadata.CATEGORICAL_EPISTEMIC_DELTA), zero)
        return {**nothing, metadata.CATEGORICAL_ALEATORIC: total}
    # sum p^2 - 2 sum p^3 + (sum p^2)^2 = 2 sum p q - (1 - total) total
    twice = g.squeeze(sum_segments(g, g.node("Mul", [spread, mass]), count, "gini/weighted", 2.0), 0)
    sum2 = g.node("Sub", [g.constant("one", 1.0), total], "gini/sum2")
    norm = g.node("Sub", [twice, g.node("Mul", [sum2, total])], "gini/jacobian")
    delta = g.node("Mul", [s2, g.node("Max", [norm, g.constant("zero", 0.0)])], "gini/delta")
    epistemic, aleatoric = split_variance(g, delta, total, "gini", positive=True)
    return {
        metadata.CATEGORICAL_ALEATORIC: aleatoric,
        metadata.CATEGORICAL_EPISTEMIC: epistemic,
        metadata.CATEGORICAL_EPISTEMIC_DELTA: delta,
    }


def member_gini_outputs(g: GraphBuilder, masses: str, apart: str) -> dict[str, str]:
    """Of M members: masses [M, n, k - 1], and `apart`, each less their average. Epistemic is how far they disagree."""
    # From the differences of the members, not as a difference of sums, which would cancel where they nearly agree.
    disagreement = g.mean(g.sum_of_squares(apart, "members/distance"), [0], "members/categorical")
    own = g.mean(g.sum_of_squares(masses, "members/sum2"), [0], "members/own")
    return {
        metadata.CATEGORICAL_ALEATORIC: g.node("Sub", [g.constant("one", 1.0), own], "members/impurity"),
        metadata.CATEGORICAL_EPISTEMIC: disagreement,
        metadata.CATEGORICAL_EPISTEMIC_DELTA: disagreement,
    }
