"""Synthetic targets whose conditional distribution is known: point masses, a range far too wide, integers.

A row's latent location is the sum of a user's and an item's effect, a linear function of one number and a wave of
another, so that there is something to learn from every kind of feature. The target is a transform of a normal variable
around it. The transform determines the kind of target, and its CDF has a closed form.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from benchmarks.truth.judge import Forecast
from benchmarks.truth.parts import Parts
from learning.data.table import Array, Table
from learning.schema import Feature, Schema, Target

Floats = NDArray[np.float64]

# With 10% of them for calibration, the coverage of a 50% interval is known within 0.5 points; the bound is 1.5.
FITTING_ROWS, JUDGED_ROWS = 100_000, 50_000
USERS, ITEMS = 2_000, 500
FEATURES = (
    Feature("user_id", kind="id", role="context", type="int64", embedding=16),
    Feature("item_id", kind="id", role="candidate", type="string", embedding=16),
    Feature("age", kind="number", role="candidate", type="float32"),
    Feature("length", kind="bucket", role="candidate", type="float32", embedding=8, buckets=50),
)
NOISE = 0.8

# Uniform draws [n] and locations [n] -> y [n].
Draw = Callable[[Floats, Floats], Floats]
# Points [p] and locations [n] -> F(t-) and F(t), each [n, p].
Heights = Callable[[Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class KnownTarget:
    """`points`: the values [p], including atoms, at which the true CDF is evaluated. `must_warn`: whether the product
    should warn about the range or the bins."""

    name: str
    low: float
    high: float
    points: Floats
    draw: Draw
    heights: Heights
    must_warn: bool = False

    @property
    def schema(self) -> Schema:
        return Schema(FEATURES, Target("y", "units", self.low, self.high))

    def parts(self, seed: int = 0, fitting: int = FITTING_ROWS, judged: int = JUDGED_ROWS) -> Parts:
        """Rows for fitting, and new rows of the same users and items for evaluation."""
        return Parts(self.name, self._sample(fitting, (seed, 1)), self._sample(judged, (seed, 2)))

    def truth(self, table: Table) -> Forecast:
        """The true distribution of every row, as a forecast: the prediction of a perfect model."""
        minus, plus = self.heights(self.points, locations(table))
        cdf = np.stack([minus, plus], axis=2).reshape(len(minus), -1)
        knots = np.repeat(self.points, 2)
        widths = np.diff(knots)
        mean = knots[-1] - np.sum(widths * 0.5 * (cdf[:, 1:] + cdf[:, :-1]), axis=1)
        return Forecast(knots, cdf, mean, table.target)

    def _sample(self, rows: int, seed: tuple[int, int]) -> Table:
        random = np.random.default_rng(seed)
        item = np.minimum(random.geometric(6.0 / ITEMS, size=rows), ITEMS)
        columns: dict[str, Array] = {
            "user_id": random.integers(USERS, size=rows),
            "item_id": np.strings.add("item-", item.astype(np.str_)),
            "age": random.normal(size=rows).astype(np.float32),
            "length": random.gamma(2.0, 1.0, size=rows).astype(np.float32),
        }
        empty = Table(self.schema, columns, np.zeros(rows, np.float32))
        y = self.draw(random.random(rows), locations(empty))
        return Table(self.schema, columns, np.clip(y, self.low, self.high).astype(np.float32))


def locations(table: Table) -> Floats:
    """The latent location of every row, [n]: mean 0 and variance about 1 over the rows."""
    random = np.random.default_rng(20261118)
    users, items = random.normal(0.0, 0.6, USERS), random.normal(0.0, 0.5, ITEMS + 1)
    item = np.strings.replace(table.columns["item_id"], "item-", "").astype(np.int64)
    age, length = (table.columns[name].astype(np.float64) for name in ("age", "length"))
    location: Floats = users[table.columns["user_id"]] + items[item] + 0.4 * age + 0.5 * np.sin(2.0 * length)
    return location


def known_targets() -> tuple[KnownTarget, ...]:
    return (_capped(), _zero_and_middle(), _wide_lognormal(), _integers())


def _capped() -> KnownTarget:
    """A normal variable, clipped so that 40% of its mass is at the cap: a play time limited by the video's length."""
    cap, low = 10.0, 0.0
    offset = float(ndtri(0.4) * np.sqrt(1.0 + NOISE**2))

    def place(t: Floats) -> Floats:
        """The value of the latent normal at t: the cap is at -offset, and about 40% of all rows are above it."""
        return (t - cap) / 2.0 - offset

    def draw(u: Floats, location: Floats) -> Floats:
        return np.minimum(cap + 2.0 * (_noisy(location, u) + offset), cap)

    def heights(points: Floats, location: Floats) -> tuple[Floats, Floats]:
        minus = _below(place(points), location)
        plus = np.where(points >= cap, 1.0, minus)
        return np.where(points <= low, 0.0, minus), plus

    return KnownTarget("40% on the upper end", low, cap, _grid(low, cap, 200), draw, heights)


def _zero_and_middle() -> KnownTarget:
    """0 for 30% of the rows, exactly 1 for 5%, otherwise a value in (0, 3)."""
    low, high, middle, middle_share = 0.0, 3.0, 1.0, 0.05

    def zero_share(location: Floats) -> Floats:
        share: Floats = (1.0 - middle_share) * expit(-0.9 - location)
        return share

    def smooth(points: Floats, location: Floats) -> Floats:
        return _below(_log_odds(points / high), location)

    def draw(u: Floats, location: Floats) -> Floats:
        zero = zero_share(location)
        rest = 1.0 - zero - middle_share
        inner = np.clip((u - zero - middle_share) / rest, 1e-12, 1.0 - 1e-12)
        value = high * expit(_noisy(location, inner))
        return np.where(u < zero, low, np.where(u < zero + middle_share, middle, value))

    def heights(points: Floats, location: Floats) -> tuple[Floats, Floats]:
        zero = zero_share(location)[:, None]
        plus = zero + (1.0 - zero - middle_share) * smooth(points, location)
        plus = plus + middle_share * (points >= middle)
        minus = np.where(points <= low, 0.0, plus - middle_share * (points == middle))
        return minus, plus

    points = np.unique(np.concatenate([_grid(low, high, 200), [middle]]))
    return KnownTarget("30% on the lower end and 5% in the middle", low, high, points, draw, heights)


def _wide_lognormal() -> KnownTarget:
    """A lognormal target declared on [0, 10,000], nearly all of which is below 20, so that equal bins would put it in
    one."""
    low, high = 0.0, 10_000.0

    def draw(u: Floats, location: Floats) -> Floats:
        return np.exp(0.5 * _noisy(location, u))

    def heights(points: Floats, location: Floats) -> tuple[Floats, Floats]:
        with np.errstate(divide="ignore"):
            height = _below(2.0 * np.log(points), location)
        return height, np.where(points >= high, 1.0, height)

    points = np.concatenate([[low], np.geomspace(0.005, 200.0, 250), [high]])
    return KnownTarget("lognormal with a far too wide range", low, high, points, draw, heights, must_warn=True)


def _integers() -> KnownTarget:
    """Integers from 0 to 100, each with about one percent of the rows."""
    low, high = 0.0, 100.0

    def draw(u: Floats, location: Floats) -> Floats:
        drawn: Floats = np.round(high * expit(_noisy(location, u)))
        return drawn

    def heights(points: Floats, location: Floats) -> tuple[Floats, Floats]:
        minus, plus = (_below(_log_odds((points + half) / high), location) for half in (-0.5, 0.5))
        return minus, plus

    return KnownTarget("integers 0 to 100", low, high, np.arange(101.0), draw, heights)


def _noisy(location: Floats, u: Floats) -> Floats:
    """The latent normal [n] at uniform draws u [n]."""
    latent: Floats = location + NOISE * ndtri(u)
    return latent


def _below(latent: Floats, location: Floats) -> Floats:
    """P(latent normal <= latent [p]) for every location [n] -> [n, p]."""
    height: Floats = ndtr((latent - location[:, None]) / NOISE)
    return height


def _log_odds(share: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        odds: Floats = logit(np.clip(share, 0.0, 1.0))
    return odds


def _grid(low: float, high: float, steps: int) -> Floats:
    return np.linspace(low, high, steps + 1).astype(np.float32).astype(np.float64)
