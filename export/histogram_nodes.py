"""The CR head: closed_forms.categorical as graph nodes."""

from dataclasses import dataclass

import numpy as np

from export.builder import Array, GraphBuilder
from export.cdf_nodes import CdfColumns
from export.options import Layout
from ghostless.contract import metadata
from ghostless.heads.closed_forms.categorical import PROBIT

TINY = float(np.finfo(np.float32).tiny)


def probabilities(g: GraphBuilder, logits: str, s2: str | None) -> str:
    """softmax(m / sqrt(1 + pi/8 s^2)), [.., K]."""
    if s2 is not None:
        spread = g.node("Mul", [s2, g.constant("probit/eta", PROBIT)])
        temperature = g.node("Sqrt", [g.node("Add", [spread, g.constant("one", 1.0)])], "probit/temperature")
        logits = g.node("Div", [logits, temperature], "probit/logits")
    return g.node("Softmax", [logits], "probabilities", axis=-1)


def read_distribution(g: GraphBuilder, p: str, layout: Layout) -> CdfColumns:
    """The histogram's CDF at its edges, p @ (upper triangle); its segments' masses are p itself."""
    bins = len(layout.knots) - 1
    cdf = g.node("MatMul", [p, g.constant("cdf/triangle", np.triu(np.ones((bins, bins + 1)), 1))], "cdf/knots")
    low = g.columns(cdf, 0, bins, "cdf/low")
    if len(layout.edges) == len(layout.knots):
        return CdfColumns(cdf, p, p, low)
    merge = np.diff([[float(knot < edge - 1e-6) for edge in layout.edges] for knot in layout.knots[:-1]], axis=1)
    return CdfColumns(cdf, g.node("MatMul", [p, g.constant("bins/merge", merge)], "cdf/bins"), p, low)


def density(g: GraphBuilder, p: str, layout: Layout) -> str:
    """Constant inside a bin and 0 beyond the edges, on the grid: [n, g]."""
    bins = np.searchsorted(layout.knots, layout.grid, side="right") - 1
    heights = np.zeros((len(layout.knots) - 1, len(layout.grid)))
    for column, index in enumerate(bins):
        if 0 <= index < len(heights):
            heights[index, column] = 1.0 / (layout.knots[index + 1] - layout.knots[index])
    return g.node("MatMul", [p, g.constant("density/heights", heights)], "density/rows")


@dataclass(frozen=True)
class TargetMoments:
    """mean [.., 1]; total [..]; sensitivity [..]: sum of p_k^2 (b_k - mean)^2."""

    mean: str
    total: str
    sensitivity: str


def target_moments(g: GraphBuilder, p: str, knots: Array) -> TargetMoments:
    """categorical.target_moments: mean and variance in target units, y uniform inside its bin."""
    centres, widths = 0.5 * (knots[1:] + knots[:-1]), np.diff(knots)
    mean = g.node("MatMul", [p, g.constant("moments/centres", centres[:, None])], "moments/mean")
    distance = g.node("Sub", [g.constant("moments/bins", centres[None, :]), mean], "moments/distance")
    weighted = g.node("Mul", [p, distance], "moments/weighted")
    between = g.sum_last(g.node("Mul", [weighted, distance]), "moments/between")
    if np.allclose(widths, widths[0], rtol=1e-9):
        inside = g.constant("moments/inside", widths[0] ** 2 / 12.0)
    else:
        inside = g.squeeze(g.node("MatMul", [p, g.constant("moments/inside", widths[:, None] ** 2 / 12.0)]))
    sensitivity = g.sum_of_squares(weighted, "moments/sensitivity")
    return TargetMoments(mean, g.node("Add", [between, inside], "moments/total"), sensitivity)


def posterior_outputs(g: GraphBuilder, p: str, s2: str | None, layout: Layout) -> dict[str, str]:
    """One network's moments and Gini split, each [n]."""
    moments = target_moments(g, p, layout.knots)
    mean = g.squeeze(moments.mean)
    square = g.node("Mul", [p, p], "gini/square")
    sum2 = g.sum_last(square, "gini/sum2")
    impurity = g.node("Sub", [g.constant("one", 1.0), sum2])
    # Above zero, since _saturated divides by it; the moments' total is, a bin has a width.
    total = g.node("Max", [impurity, g.constant("tiny", TINY)], "gini/total")
    if s2 is None:
        zero = g.zeros_like(mean, "zeros")
        split = {metadata.EPISTEMIC: zero, metadata.LOGIT_VARIANCE: zero, metadata.ALEATORIC: moments.total}
        gini = dict.fromkeys((metadata.CATEGORICAL_EPISTEMIC, metadata.CATEGORICAL_EPISTEMIC_DELTA), zero)
        return {metadata.MEAN: mean, **split, **gini, metadata.CATEGORICAL_ALEATORIC: total}
    s2 = g.squeeze(s2)
    sum3 = g.sum_last(g.node("Mul", [square, p]), "gini/sum3")
    # sum2 - 2 sum3 + sum2^2
    twice = g.node("Mul", [sum3, g.constant("two", 2.0)])
    norm = g.node("Sub", [g.node("Add", [sum2, g.node("Mul", [sum2, sum2])]), twice], "gini/jacobian")
    delta = g.node("Mul", [s2, g.node("Max", [norm, g.constant("zero", 0.0)])], "gini/delta")
    categorical, gini_noise = _saturated(g, delta, total, "gini")
    moved = g.node("Mul", [s2, moments.sensitivity], "moments/delta")
    epistemic, aleatoric = _saturated(g, moved, moments.total, "moments")
    return {
        metadata.MEAN: mean,
        metadata.ALEATORIC: aleatoric,
        metadata.EPISTEMIC: epistemic,
        metadata.LOGIT_VARIANCE: s2,
        metadata.CATEGORICAL_ALEATORIC: gini_noise,
        metadata.CATEGORICAL_EPISTEMIC: categorical,
        metadata.CATEGORICAL_EPISTEMIC_DELTA: delta,
    }


def _saturated(g: GraphBuilder, delta: str, total: str, name: str) -> tuple[str, str]:
    """categorical.saturated, epistemic = delta total / (delta + total), and what it leaves of the total, which is > 0.

    The rest is total^2 / (delta + total): as a difference it would cancel, or fall below zero, where delta is large.
    """
    share = g.node("Div", [total, g.node("Add", [delta, total])], f"{name}/share")
    return g.node("Mul", [delta, share], f"{name}/epistemic"), g.node("Mul", [total, share], f"{name}/aleatoric")


def member_outputs(g: GraphBuilder, logits: str, p: str, average: str, layout: Layout) -> dict[str, str]:
    """M members: logits and p [M, n, K], average [n, K]. Epistemic is how far they disagree."""
    whole, each = target_moments(g, average, layout.knots), target_moments(g, p, layout.knots)
    # From the differences of the members, not as a difference of sums, which would cancel where they nearly agree.
    apart = g.node("Sub", [p, average], "members/apart")
    centres = 0.5 * (layout.knots[1:] + layout.knots[:-1])
    shift = g.node("MatMul", [apart, g.constant("members/centres", centres[:, None])], "members/shift")
    epistemic = g.mean(g.node("Mul", [shift, shift]), [0, 2], "members/epistemic")
    categorical = g.mean(g.sum_of_squares(apart, "members/distance"), [0], "members/categorical")
    own = g.mean(g.sum_of_squares(p, "members/sum2"), [0], "members/own")
    centre = g.mean(logits, [0], "members/logits", keepdims=True)
    distance = g.node("Sub", [logits, centre])
    return {
        metadata.MEAN: g.squeeze(whole.mean),
        metadata.ALEATORIC: g.mean(each.total, [0], "members/aleatoric"),
        metadata.EPISTEMIC: epistemic,
        metadata.LOGIT_VARIANCE: g.mean(g.node("Mul", [distance, distance]), [0, 2], "members/logit_variance"),
        metadata.CATEGORICAL_ALEATORIC: g.node("Sub", [g.constant("one", 1.0), own], "members/impurity"),
        metadata.CATEGORICAL_EPISTEMIC: categorical,
        metadata.CATEGORICAL_EPISTEMIC_DELTA: categorical,
    }
