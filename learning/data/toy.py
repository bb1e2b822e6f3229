"""The bimodal toy of the paper's Figure 1: two narrow modes near 0 and 1, and an out-of-distribution side.

Training draws x from [-2, 2]. For x > 2 the true distribution gradually turns into noise; from x = 4 on it is uniform
over the target's range. A model never sees that region, so its uncertainty should rise there.
"""

import numpy as np
from scipy.special import expit, ndtr, ndtri

from learning.data.table import Array, Table
from learning.schema import Feature, Schema, Target

TOY_ROWS = 20_000

TOY_SCHEMA = Schema(
    (Feature("x", kind="number", role="candidate", type="float32"),),
    Target("y", unit="", low=-0.5, high=1.5),
)

_LOW, _HIGH = TOY_SCHEMA.target.low, TOY_SCHEMA.target.high
_WIDTH = 0.06
# The modes are more than 8 widths inside the range: truncating them would change nothing in float64.


def toy(rows: int, seed: int, low: float = -2.0, high: float = 2.0) -> Table:
    """`rows` points with x uniform on [low, high]; the default is the training region."""
    random = np.random.default_rng(seed)
    x = random.uniform(low, high, rows).astype(np.float32)
    upper, noise = _weights(x)
    y = (random.random(rows) < upper) + _WIDTH * ndtri(random.random(rows))
    y = np.where(random.random(rows) < noise, random.uniform(_LOW, _HIGH, rows), y)
    return Table(TOY_SCHEMA, {"x": x}, np.clip(y, _LOW, _HIGH).astype(np.float32))


def toy_density(x: Array, points: Array) -> Array:
    """True density of y given x [n] at points [g]: [n, g]."""
    upper, noise = (weight[:, None] for weight in _weights(x))
    modes = (1 - upper) * _normal(points) + upper * _normal(points - 1.0)
    inside = (points >= _LOW) & (points <= _HIGH)
    density: Array = (1 - noise) * modes + noise * inside / (_HIGH - _LOW)
    return density


def toy_cdf(x: Array, points: Array) -> Array:
    """True P(y <= points | x), [n, g] for x [n] and points [g]."""
    upper, noise = (weight[:, None] for weight in _weights(x))
    modes = (1 - upper) * ndtr(points / _WIDTH) + upper * ndtr((points - 1.0) / _WIDTH)
    share: Array = (1 - noise) * modes + noise * np.clip((points - _LOW) / (_HIGH - _LOW), 0.0, 1.0)
    return share


def _weights(x: Array) -> tuple[Array, Array]:
    """Weight of the mode near 1 relative to the one near 0, and weight of the noise, each [n]."""
    return expit(1.5 * x.astype(np.float64)), np.clip((x.astype(np.float64) - 2.0) / 2.0, 0.0, 1.0)


def _normal(distance: Array) -> Array:
    density: Array = np.exp(-0.5 * (distance / _WIDTH) ** 2) / (_WIDTH * np.sqrt(2.0 * np.pi))
    return density
