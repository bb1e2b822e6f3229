"""Independent scores of predictive distributions with point masses, in numpy, without code of the product.

A forecast is a CDF on shared knots, linear between consecutive ones. An atom is a value that appears twice among the
knots: its first height is F(v-), its second F(v). F is 0 before the first knot and 1 after the last, so mass that a
model leaves outside its range is an atom at the nearer end.

Shapes: n rows, k knots, q levels, b buckets.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# 0.05, 0.10, ..., 0.95.
LEVELS: Floats = np.arange(1, 20) / 20.0
CENTRAL = (0.5, 0.8, 0.9)
BUCKETS = 10
LEAST_MASS = 1e-12
# Differs from all seeds that data is drawn with: PIT draws that repeat the data's own draws would not be independent.
PIT_SEED = 20_261_118_017
# How far heights may decrease or leave [0, 1] and still count as rounding errors of single precision.
ROUNDING = 1e-5


@dataclass(frozen=True)
class Forecast:
    """Predictions for n rows that were not used for fitting: knots [k], cdf [n, k], mean [n], y [n]."""

    knots: Floats
    cdf: Floats
    mean: Floats
    y: Floats

    def __post_init__(self) -> None:
        # Targets and knots are single-precision values of the product; equality decides whether y is on an atom.
        for name in ("knots", "y"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float32).astype(np.float64))
        object.__setattr__(self, "mean", np.asarray(self.mean, np.float64))
        object.__setattr__(self, "cdf", _proper(np.asarray(self.cdf, np.float64)))
        rows = len(self.y)
        if self.cdf.shape != (rows, len(self.knots)) or self.mean.shape != (rows,):
            raise ValueError(
                f"{rows} targets and {len(self.knots)} knots, but cdf {self.cdf.shape} and mean {self.mean.shape}"
            )
        if len(self.knots) < 2 or np.any(np.diff(self.knots) < 0) or not self.knots[0] < self.knots[-1]:
            raise ValueError("knots must be at least two, not decrease, and span a range")
        for name in ("knots", "mean", "y"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite")

    @property
    def rows(self) -> int:
        return len(self.y)

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """F(y-) and F(y), each [n]."""
        rows = np.arange(self.rows)
        last = len(self.knots) - 1
        after = np.searchsorted(self.knots, self.y, side="left")  # knots[after - 1] < y <= knots[after]
        before = np.searchsorted(self.knots, self.y, side="right") - 1  # knots[before] <= y < knots[before + 1]
        inside = (after > 0) & (before < last)
        upper, lower = np.clip(after, 1, last), np.clip(before, 0, last - 1)
        on_knot = self.knots[np.minimum(after, last)] == self.y
        # Between knots, `lower` and `upper` are the two ends of the segment that contains y.
        width = np.where(on_knot | ~inside, 1.0, self.knots[upper] - self.knots[lower])
        share = (self.y - self.knots[lower]) / width
        left, right = self.cdf[rows, lower], self.cdf[rows, upper]
        between = left + (right - left) * share
        minus = np.where(on_knot, self.cdf[rows, np.minimum(after, last)], between)
        plus = np.where(on_knot, self.cdf[rows, np.clip(before, 0, last)], between)
        minus = np.where(after == 0, 0.0, np.where(self.y > self.knots[-1], 1.0, minus))
        plus = np.where(self.y < self.knots[0], 0.0, np.where(before == last, 1.0, plus))
        return minus, plus

    def before(self, points: ArrayLike) -> Floats:
        """F(t-) at points [p] -> [n, p]."""
        cuts = np.asarray(points, np.float32).astype(np.float64)
        heights = np.empty((self.rows, len(cuts)))
        for column, cut in enumerate(cuts):
            after = int(np.searchsorted(self.knots, cut, side="left"))
            if after == 0:
                heights[:, column] = 0.0
            elif after == len(self.knots):
                heights[:, column] = 1.0
            else:
                share = (cut - self.knots[after - 1]) / (self.knots[after] - self.knots[after - 1])
                left, right = self.cdf[:, after - 1], self.cdf[:, after]
                heights[:, column] = left + (right - left) * share
        return heights

    def quantiles(self, levels: ArrayLike) -> Floats:
        """inf {t: F(t) >= level} for levels [q] -> [n, q]."""
        found = np.empty((self.rows, len(np.asarray(levels))))
        rows = np.arange(self.rows)
        for column, level in enumerate(np.asarray(levels, np.float64)):
            first = np.sum(self.cdf < level, axis=1)
            right = np.minimum(first, len(self.knots) - 1)
            left = np.maximum(right - 1, 0)
            low, high = self.cdf[rows, left], self.cdf[rows, right]
            rise = np.where(high > low, high - low, 1.0)
            # A level that no knot reaches is in the mass after the last knot; one that the first knot exceeds is in the
            # mass before it.
            outside = (first == 0) | (first == len(self.knots))
            share = np.where(outside, 1.0, np.clip((level - low) / rise, 0.0, 1.0))
            found[:, column] = self.knots[left] + share * (self.knots[right] - self.knots[left])
        return found

    def distribution_mean(self) -> Floats:
        """The mean [n] of the CDF itself: last knot minus the integral of F."""
        area = np.sum(np.diff(self.knots) * 0.5 * (self.cdf[:, 1:] + self.cdf[:, :-1]), axis=1)
        mean: Floats = self.knots[-1] - area
        return mean


def randomised_pit(forecast: Forecast, seed: int = PIT_SEED) -> Floats:
    """u ~ U[F(y-), F(y)], [n]: uniform on [0, 1] for a calibrated forecast, also with atoms."""
    minus, plus = forecast.ends
    return minus + np.random.default_rng(seed).random(forecast.rows) * (plus - minus)


def coverage(pit: Floats, level: float) -> float:
    """Share of PIT values [n] in the central interval of `level`."""
    return float(np.mean(np.abs(pit - 0.5) <= level / 2))


def kolmogorov_smirnov(pit: Floats) -> float:
    """Largest distance between the distribution of PIT values [n] and the uniform one."""
    ordered, n = np.sort(pit), len(pit)
    return float(max(np.max(np.arange(1, n + 1) / n - ordered), np.max(ordered - np.arange(n) / n)))


def crps(forecast: Forecast) -> Floats:
    """Exact integral of (F(t) - 1[y <= t])^2 dt, [n]: F^2 left of y and (1 - F)^2 right of it."""
    knots, heights = forecast.knots, forecast.cdf
    widths = np.diff(knots)
    inner = np.clip(forecast.y, knots[0], knots[-1])
    total = np.abs(forecast.y - inner)
    for segment, width in enumerate(widths):
        if width == 0.0:
            continue
        left, right = heights[:, segment], heights[:, segment + 1]
        # The part of the segment left of y; the rest is right of it.
        covered = np.clip((inner - knots[segment]) / width, 0.0, 1.0)
        middle = left + (right - left) * covered
        total += _square_integral(width * covered, left, middle)
        total += _square_integral(width * (1.0 - covered), 1.0 - middle, 1.0 - right)
    return total


def pinball_crps(quantiles: Floats, y: Floats, levels: Floats = LEVELS) -> float:
    """2 x mean pinball loss over quantiles [n, q] of levels [q]: an approximation of CRPS, the same for every
    method."""
    excess = np.asarray(y, np.float64)[:, None] - quantiles
    return float(2.0 * np.mean(np.maximum(levels * excess, (levels - 1.0) * excess)))


def bucket_masses(forecast: Forecast, edges: Floats) -> Floats:
    """Masses [n, b] of the buckets [l, u) between edges [b + 1]; mass outside is added to the end buckets."""
    heights = forecast.before(edges)
    heights[:, 0], heights[:, -1] = 0.0, 1.0
    return np.diff(heights, axis=1)


def bucket_of(y: Floats, edges: Floats) -> Ints:
    """Bucket [l, u) of each y [n]."""
    cuts = np.asarray(edges, np.float32).astype(np.float64)
    return np.clip(np.searchsorted(cuts, y, side="right") - 1, 0, len(cuts) - 2).astype(np.int64)


def discretised_nll(masses: Floats, truth: Ints) -> float:
    """Mean -log of the mass of the bucket that contains y, for masses [n, b] and truth [n]."""
    return float(-np.mean(np.log(np.maximum(masses[np.arange(len(truth)), truth], LEAST_MASS))))


def expected_calibration_error(masses: Floats, truth: Ints, groups: int = 10) -> float:
    """The paper's ECE: |accuracy - confidence| of the most probable bucket, over equal groups of confidence."""
    confidence, hit = masses.max(axis=1), masses.argmax(axis=1) == truth
    group = np.clip(np.ceil(confidence * groups).astype(int) - 1, 0, groups - 1)
    gaps = np.bincount(group, hit - confidence, minlength=groups)
    return float(np.abs(gaps).sum() / len(truth))


@dataclass(frozen=True)
class Judgement:
    """All figures of one forecast. coverage: fraction by randomised PIT, by central level; pit: [n]."""

    rows: int
    nll: float
    crps: float
    crps_levels: float
    ece: float
    rmse: float
    ks: float
    coverage: dict[float, float]
    pit: Floats

    def coverage_error(self) -> float:
        """Largest |coverage - level| over the central intervals, in percentage points."""
        return 100.0 * max(abs(share - level) for level, share in self.coverage.items())


def judge(forecast: Forecast, low: float, high: float) -> Judgement:
    """All figures of one forecast of a target on [low, high]."""
    edges = np.linspace(low, high, BUCKETS + 1)
    masses, truth = bucket_masses(forecast, edges), bucket_of(forecast.y, edges)
    pit = randomised_pit(forecast)
    return Judgement(
        rows=forecast.rows,
        nll=discretised_nll(masses, truth),
        crps=float(crps(forecast).mean()),
        crps_levels=pinball_crps(forecast.quantiles(LEVELS), forecast.y),
        ece=expected_calibration_error(masses, truth),
        rmse=float(np.sqrt(np.mean((forecast.mean - forecast.y) ** 2))),
        ks=kolmogorov_smirnov(pit),
        coverage={level: coverage(pit, level) for level in CENTRAL},
        pit=pit,
    )


def _proper(cdf: Floats) -> Floats:
    """Heights [n, k] without the product's rounding errors; raises ValueError if they are not a distribution."""
    if cdf.ndim != 2 or not np.isfinite(cdf).all():
        raise ValueError(f"cdf must be [n, k] and finite, got shape {cdf.shape}")
    if cdf.min(initial=0.0) < -ROUNDING or cdf.max(initial=0.0) > 1.0 + ROUNDING:
        raise ValueError(f"cdf must lie in [0, 1], got [{cdf.min()}, {cdf.max()}]")
    if np.diff(cdf, axis=1).min(initial=0.0) < -ROUNDING:
        raise ValueError(f"cdf decreases by {-np.diff(cdf, axis=1).min():.3g}")
    # Scores iterate over the knots, so the heights of all rows at one knot are contiguous.
    return np.asfortranarray(np.maximum.accumulate(np.clip(cdf, 0.0, 1.0), axis=1))


def _square_integral(width: Floats, start: Floats, end: Floats) -> Floats:
    """Integral of the square of a line from `start` to `end` over `width`."""
    area: Floats = width * (start * start + start * end + end * end) / 3.0
    return area
