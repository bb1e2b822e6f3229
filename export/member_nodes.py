"""The tail of several networks of one head: an ensemble's members, or MC-dropout's passes.

Each network is read as the masses of the segments between the graph's knots, [M, n, k - 1]; the average over networks
is calibrated. The disagreement of their means is the epistemic part, as a share of the average's variance.
"""

from dataclasses import replace

import numpy as np

from export import cdf_nodes, histogram_nodes, quantile_nodes, reading, split_nodes
from export.builder import Array, GraphBuilder, Value
from export.cdf_nodes import Segments
from export.options import Layout
from export.posterior_nodes import LastLayerNodes
from export.quantile_nodes import QuantileBasis
from export.stack_nodes import Stack
from ghostless.contract import metadata
from ghostless.heads.histogram import HistogramHead
from ghostless.heads.quantile import QuantileHead

# Members with different bins have no logits in common, so the logs of their masses are compared instead. This is added
# to a mass before the log.
LEAST_SHARE = 1e-3

Head = QuantileHead | HistogramHead


def masses(
    g: GraphBuilder, outputs: Value, head: Head, basis: QuantileBasis | None, members: int, layout: Layout
) -> tuple[Value, Value]:
    """One network's outputs [n, columns], or stacked ones [M, n, columns], as masses [.., k - 1]; and the values from
    which its logit variance is computed: the centres of QR, the logits of CR."""
    if basis is None:
        assert isinstance(head, HistogramHead)
        p = histogram_nodes.probabilities(g, outputs, None)
        matrix = reading.class_masses(head, layout.knots)
        return p if matrix is None else g.node("MatMul", [p, g.constant("members/segments", matrix)], "masses"), outputs
    assert isinstance(head, QuantileHead)
    parts = quantile_nodes.components(g, LastLayerNodes(outputs, basis.columns), np.ones(head.config.levels), basis)
    return quantile_masses(g, parts, head, members, layout), parts.centre


def quantile_masses(
    g: GraphBuilder, parts: quantile_nodes.Components, head: QuantileHead, members: int, layout: Layout
) -> Value:
    """A QR mixture, or stacked ones, as masses [.., k - 1], from erf at the inner knots."""
    inner = slice(1, -1)
    z = head.z.double().numpy()[inner]
    groups = head.config.groups
    erf = quantile_nodes.erf_at_knots(g, parts, z, members)
    sums = quantile_nodes.erf_sums(g, erf, len(z), groups)
    if members > 1:
        sums = g.reshape(sums, [len(z), members, -1])
    return sums_to_masses(g, sums, *reading.quantile_heights(head, groups, inner, layout.knots), stacked=members > 1)


def sums_to_masses(g: GraphBuilder, sums: Value, to_heights: Array, offset: Array, stacked: bool = False) -> Value:
    """Sums over components [p, n], or stacked [p, M, n], as masses [n, k - 1] or [M, n, k - 1]."""
    rows = g.node("Transpose", [sums], "masses/rows", perm=[1, 2, 0] if stacked else [1, 0])
    product = g.node("MatMul", [rows, g.constant("masses/steps", np.diff(to_heights, axis=1))])
    raw = g.node("Add", [product, g.constant("masses/offset", np.diff(offset))], "masses/raw")
    return g.node("Relu", [raw], "masses")


def outputs(g: GraphBuilder, stacked: Stack, layout: Layout) -> tuple[Segments, dict[str, Value], Stack]:
    """Masses [M, n, k - 1] -> the calibrated distribution, its moments, and each member's distance from the average."""
    average = stacked.average(g, "members/average")
    segments = cdf_nodes.from_masses(g, average, layout)
    calibrated = cdf_nodes.moments(g, segments.mass, layout.knots)
    # Computed from the members' differences: a difference of sums would cancel when they nearly agree.
    apart = stacked.less(g, average, "members/apart")
    disagreement = apart.mean_square_sum(g, 0.5 * (layout.knots[1:] + layout.knots[:-1]), "members/disagreement")
    whole = calibrated
    if layout.map_heights is not None:
        whole = cdf_nodes.moments(g, g.transpose(average, "members/by_segment"), layout.knots, "members/whole")
    parts, _ = split_nodes.share_split(g, disagreement, whole.total, calibrated.total, None)
    # Without effects the candidate's part equals the whole epistemic part. Members have no last-layer posterior.
    moments: dict[str, Value | None] = {
        metadata.MEAN: calibrated.mean,
        metadata.ALEATORIC: parts.aleatoric,
        metadata.EPISTEMIC: parts.epistemic,
        metadata.EPISTEMIC_CANDIDATE: parts.candidate,
        metadata.EPISTEMIC_LAST_LAYER: None,
    }
    return segments, cdf_nodes.with_zeros(g, moments), apart


def logs(g: GraphBuilder, stacked: Stack) -> Stack:
    """Logarithms of the members' masses [M, n, k - 1]."""
    floored = g.node("Add", [stacked.value, g.constant("members/least", LEAST_SHARE)])
    return replace(stacked, value=g.node("Log", [floored], "members/logs"))
