"""The linear pool of a CR and a QR network: learning.linear_pool.LinearPool, calibrated, as graph nodes.

Both networks are read as uncalibrated masses between CR's knots; the weighted mean of the masses is calibrated. A pool
first draws which head is right, so the distance between the heads' means is epistemic.
"""

from dataclasses import dataclass

import numpy as np

from export import cdf_nodes, histogram_nodes, member_nodes, quantile_nodes, reading, split_nodes
from export.builder import Array, GraphBuilder, Value
from export.cdf_nodes import Segments
from export.effect_nodes import EffectNodes
from export.options import Layout
from export.quantile_nodes import Components
from ghostless.contract import metadata
from ghostless.heads.histogram import HistogramHead
from ghostless.heads.quantile import QuantileHead


@dataclass(frozen=True)
class PooledHeads:
    """The values of both heads: CR's p [n, K] and s^2 [1, n], QR's mixture and its scales a_k, QR's weight, and the
    effects, which both heads share."""

    cr: HistogramHead
    p: Value
    cr_s2: Value | None
    qr: QuantileHead
    mixture: Components
    scales: Array
    qr_weight: float
    effects: EffectNodes | None


def outputs(g: GraphBuilder, parts: PooledHeads, layout: Layout) -> tuple[Segments, dict[str, Value]]:
    """The calibrated distribution and its moments, each [n]. As in predictive.CalibratedReading, the calibrated
    variance minus the part of the effects is split in the same ratio as the pool's own variance:
    w_m epistemic_m + w_m (mean_m - mean)^2 to w_m aleatoric_m."""
    w = parts.qr_weight
    matrix = reading.class_masses(parts.cr, layout.knots)
    cr_mass = parts.p if matrix is None else g.node("MatMul", [parts.p, g.constant("pool/segments", matrix)])
    # A deterministic twin has no posterior, and so the outer knots are not needed.
    points = slice(1, -1) if parts.mixture.s2 is None else slice(None)
    z, groups = parts.qr.z.double().numpy()[points], parts.qr.config.groups
    erf = quantile_nodes.erf_at_knots(g, parts.mixture, z)
    sums = quantile_nodes.erf_sums(g, erf, len(z), groups)
    to_heights, offset = reading.quantile_heights(parts.qr, groups, points, layout.knots)
    qr_mass = member_nodes.sums_to_masses(g, sums, to_heights, offset)
    segments = cdf_nodes.from_masses(g, _weighted(g, qr_mass, cr_mass, w, "pool/mass"), layout)
    calibrated = cdf_nodes.moments(g, segments.mass, layout.knots)
    cr = cdf_nodes.moments(g, g.transpose(cr_mass, "pool/cr/mass"), layout.knots, "pool/cr")
    own = np.asarray(parts.qr.edges.double().numpy())
    if np.array_equal(own, layout.knots):
        qr = cdf_nodes.moments(g, g.transpose(qr_mass, "pool/qr/mass"), layout.knots, "pool/qr")
    else:
        own_mass = member_nodes.sums_to_masses(g, sums, *reading.quantile_heights(parts.qr, groups, points, own))
        qr = cdf_nodes.moments(g, g.transpose(own_mass, "pool/qr/mass"), own, "pool/qr")
    apart = g.node("Sub", [qr.mean, cr.mean], "pool/apart")
    between = g.node("Mul", [g.node("Mul", [apart, apart]), g.constant("pool/both", w * (1.0 - w))], "pool/between")
    whole = g.node("Add", [_weighted(g, qr.total, cr.total, w, "pool/within"), between], "pool/whole")
    ignorance = between
    logit_variance = None
    if parts.cr_s2 is not None and parts.mixture.s2 is not None:
        variances = {"qr": g.squeeze(parts.mixture.s2, 0), "cr": g.squeeze(parts.cr_s2, 0)}
        logit_variance = _weighted(g, variances["qr"], variances["cr"], w, "pool/logit_variance")
        temperature = parts.cr.calibration.temperature
        deltas = {
            "qr": quantile_nodes.last_layer_variance(g, erf, variances["qr"], parts.scales, parts.qr),
            "cr": histogram_nodes.last_layer_variance(g, cr, variances["cr"], temperature),
        }
        totals = {"qr": qr.total, "cr": cr.total}
        each = {name: split_nodes.saturated(g, deltas[name], totals[name], f"pool/{name}") for name in deltas}
        ignorance = g.node("Add", [_weighted(g, each["qr"], each["cr"], w, "pool/own"), between], "pool/ignorance")
    divided, last_layer = split_nodes.share_split(g, ignorance, whole, calibrated.total, parts.effects)
    rows = {
        metadata.MEAN: calibrated.mean,
        metadata.ALEATORIC: divided.aleatoric,
        metadata.EPISTEMIC: divided.epistemic,
        metadata.EPISTEMIC_CANDIDATE: divided.candidate,
        metadata.EPISTEMIC_LAST_LAYER: last_layer,
        metadata.LOGIT_VARIANCE: logit_variance,
    }
    return segments, cdf_nodes.with_zeros(g, rows)


def _weighted(g: GraphBuilder, qr: Value, cr: Value, w: float, name: str) -> Value:
    operands = [g.node("Mul", [value, g.constant("pool/weight", weight)]) for value, weight in ((qr, w), (cr, 1.0 - w))]
    return g.node("Add", operands, name)
