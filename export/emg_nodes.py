"""Proposition 1's density as graph nodes: exponentially modified Gaussians around every level, averaged over levels.

This output is optional and is meant for comparison with the paper. closed_forms.laplace says why it is written with a
scaled complementary error function.
"""

import numpy as np

from export.builder import Array, GraphBuilder, Value
from export.last_layer import last_layer
from export.options import Layout
from export.posterior_nodes import PhiNodes
from ghostless.heads.closed_forms.normal import ERFCX, SQRT_2
from ghostless.heads.quantile import QuantileHead
from learning.checkpoint import Checkpoint


def density(g: GraphBuilder, phi: PhiNodes, s2: Value, checkpoint: Checkpoint, layout: Layout) -> Value:
    """phi and s2 [1, n] -> [n, g]. The levels are those of the warped target z; dz / dy makes it a density of y."""
    layer = last_layer(checkpoint)
    head = checkpoint.model.head
    assert isinstance(head, QuantileHead)
    z_grid, stretch = warped_grid(head, layout.grid)
    sigma = checkpoint.model_config.sigma
    kappa = head.get_buffer("levels").double().numpy()
    m = phi.product(g, layer.weight, layer.bias, "emg/quantiles")
    sd = g.reshape(g.node("Sqrt", [s2]), [-1, 1], "emg/sd")
    s = g.node("Mul", [sd, g.constant("emg/scales", layer.scales[None, :])], "emg/s")
    s = g.node("Max", [s, g.constant("emg/floor", 1e-6)], "emg/floored")
    rows = [g.reshape(value, [-1, 1, len(kappa)]) for value in (m, s)]
    delta = g.node("Sub", [g.constant("emg/grid", z_grid[None, :, None]), rows[0]], "emg/delta")
    z = g.node("Div", [delta, rows[1]], "emg/z")
    right = _log_tilted_tail(g, z, rows[1], g.constant("emg/right", kappa / sigma))
    mirrored = g.node("Neg", [z])
    left = _log_tilted_tail(g, mirrored, rows[1], g.constant("emg/left", (1.0 - kappa) / sigma))
    both = g.node("Add", [g.node("Exp", [left]), g.node("Exp", [right])], "emg/both")
    weights = kappa * (1.0 - kappa) / (sigma * len(kappa))
    of_z = g.squeeze(g.node("MatMul", [both, g.constant("emg/weights", weights[:, None])], "emg/density"))
    return g.node("Mul", [of_z, g.constant("emg/stretch", stretch[None, :])], "emg/of_target")


def warped_grid(head: QuantileHead, grid: Array) -> tuple[Array, Array]:
    """z and dz / dy at grid points [g]. dz / dy is 0 beyond the range and at an atom, whose mass is not a density."""
    knots, z = head.edges.double().numpy(), head.z.double().numpy()
    place = np.clip(np.searchsorted(knots, grid, side="right") - 1, 0, len(knots) - 2)
    width = knots[place + 1] - knots[place]
    inside = (grid >= knots[0]) & (grid <= knots[-1]) & (width > 0.0)
    slope = np.where(inside, (z[place + 1] - z[place]) / np.where(width > 0.0, width, 1.0), 0.0)
    return z[place] + slope * (np.clip(grid, knots[0], knots[-1]) - knots[place]), slope


def _log_tilted_tail(g: GraphBuilder, z: Value, s: Value, rate: Value) -> Value:
    """closed_forms.laplace._log_tilted_tail."""
    reach = g.node("Mul", [rate, s])
    u = g.node("Mul", [g.node("Sub", [reach, z]), g.constant("emg/half", 1.0 / SQRT_2)], "emg/u")
    zero, half = g.constant("zero", 0.0), g.constant("half", 0.5)
    bell = g.node("Mul", [g.node("Mul", [z, z]), half])
    outside = g.node("Sub", [_log_erfcx(g, g.node("Max", [u, zero])), bell])
    outside = g.node("Sub", [outside, g.constant("emg/log2", np.log(2.0))], "emg/outside")
    tail = g.node("Erf", [g.node("Max", [g.node("Neg", [u]), zero])])
    # 1 - erfc(v) / 2 = (1 + erf(v)) / 2
    weight = g.node("Log", [g.node("Mul", [g.node("Add", [tail, g.constant("one", 1.0)]), half])])
    tilt = g.node("Mul", [reach, g.node("Sub", [g.node("Mul", [reach, half]), z])])
    inside = g.node("Add", [tilt, weight], "emg/inside")
    return g.node("Where", [g.node("GreaterOrEqual", [u, zero]), outside, inside], "emg/tail")


def _log_erfcx(g: GraphBuilder, z: Value) -> Value:
    """closed_forms.normal.log_erfcx, for z >= 0."""
    two = g.constant("two", 2.0)
    t = g.node("Div", [two, g.node("Add", [z, two])], "emg/t")
    polynomial = g.constant("emg/coefficient", ERFCX[-1])
    for coefficient in reversed(ERFCX[:-1]):
        polynomial = g.node("Add", [g.node("Mul", [polynomial, t]), g.constant("emg/coefficient", coefficient)])
    return g.node("Add", [g.node("Log", [t]), polynomial], "emg/erfcx")
