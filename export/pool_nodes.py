"""The linear pool of a QR and a CR network: learning.linear_pool.LinearPool as graph nodes.

The pool's CDF is read at CR's bin edges, where both are known exactly: QR's as a sum of erf, CR's as a sum of its bins.
It is affine in the two side by side, so one product gives the pooled CDF, its bins and its segments.
"""

from dataclasses import dataclass

import numpy as np

from export import cdf_nodes, histogram_nodes, quantile_nodes
from export.builder import Array, GraphBuilder
from export.cdf_nodes import CdfColumns
from export.options import Layout
from export.quantile_nodes import Components
from ghostless.contract import metadata


@dataclass(frozen=True)
class PooledHeads:
    """The values of both heads: QR's mixture of `groups` Gaussians and its scales a_k; CR's p [n, K] and s^2 [n, 1]."""

    mixture: Components
    groups: int
    scales: Array
    p: str
    s2: str | None
    qr_weight: float


def read_distribution(g: GraphBuilder, parts: PooledHeads, layout: Layout) -> CdfColumns:
    sums, to_cdf, offset = quantile_nodes.knot_sums(g, parts.mixture, parts.groups, 1, layout)
    below = np.triu(np.ones((len(layout.knots) - 1, len(layout.knots))), 1)
    w = parts.qr_weight
    both = g.node("Concat", [sums, parts.p], "pool/sources", axis=-1)
    return cdf_nodes.read_cdf(g, both, np.concatenate([w * to_cdf, (1.0 - w) * below]), w * offset, layout)


def outputs(g: GraphBuilder, parts: PooledHeads, layout: Layout) -> dict[str, str]:
    """Moments of the pool, each [n]. Which head is right is drawn first, so the distance of their means is epistemic:
    Var(E[y | head, w]) = the heads' own, averaged, + w (1 - w) (difference of the means)^2."""
    w = parts.qr_weight
    qr = quantile_nodes.posterior_outputs(g, parts.mixture, parts.scales)
    cr = histogram_nodes.posterior_outputs(g, parts.p, parts.s2, layout)
    names = (metadata.MEAN, metadata.ALEATORIC, metadata.EPISTEMIC, metadata.LOGIT_VARIANCE)
    values = {name: _weighted(g, qr[name], cr[name], w, f"pool/{name}") for name in names}
    apart = g.node("Sub", [qr[metadata.MEAN], cr[metadata.MEAN]], "pool/apart")
    disagreement = g.node("Mul", [g.node("Mul", [apart, apart]), g.constant("pool/both", w * (1.0 - w))])
    values[metadata.EPISTEMIC] = g.node("Add", [values[metadata.EPISTEMIC], disagreement], "pool/ignorance")
    if metadata.DENSITY in layout.outputs:
        own = quantile_nodes.density(g, parts.mixture, parts.groups, 1, layout)
        values[metadata.DENSITY] = _weighted(g, own, histogram_nodes.density(g, parts.p, layout), w, "pool/density")
    return values


def _weighted(g: GraphBuilder, qr: str, cr: str, w: float, name: str) -> str:
    operands = [g.node("Mul", [value, g.constant("pool/weight", weight)]) for value, weight in ((qr, w), (cr, 1.0 - w))]
    return g.node("Add", operands, name)
