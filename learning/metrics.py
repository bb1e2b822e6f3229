"""Metrics of predictive distributions: those of the paper, PIT and coverage.

The definitions are those of the paper's appendix "Additional Experimental Details". Shapes: n rows, b buckets
with edges [b + 1], g grid points, k mixture components. A grid point that appears twice is an atom, with cdf F(v-) and
F(v). Arithmetic is in float64; invalid input (a decreasing CDF, negative mass, NaN) raises a ValueError.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from ghostless.contract import scores
from learning.array_checks import (
    ROUNDING,
    Floats,
    Ints,
    boundaries,
    bucket_masses,
    distribution_function,
    finite,
    increasing,
    knots,
    reject_decrease,
    row_chunks,
)

Heights = NDArray[Any]

# Seed of the randomised PIT, so that a run's figures are reproducible.
PIT_SEED = 0


@dataclass(frozen=True)
class Reliability:
    """Per confidence bin (m/M, (m+1)/M]: mean confidence [M], accuracy [M] (NaN where empty), counts [M]."""

    confidence: Floats
    accuracy: Floats
    counts: Ints

    @property
    def expected_calibration_error(self) -> float:
        used = self.counts > 0
        gaps = np.abs(self.accuracy[used] - self.confidence[used])
        return float(np.sum(gaps * self.counts[used]) / np.sum(self.counts))


@dataclass(frozen=True)
class Coverage:
    """intervals: nominal central level -> share of y inside; levels: level -> share of y <= its quantile."""

    intervals: dict[float, float]
    levels: dict[float, float]


@dataclass(frozen=True)
class Metrics:
    """The paper's four figures, coverage of three central intervals and the PIT's distance from uniform.

    coverage_*: share of y inside the closed interval. With atoms, even a perfect model covers more than the nominal
    level. pit_coverage_*: share of the randomised PIT inside the interval, which equals the nominal level for a perfect
    model. pit_ks: Kolmogorov-Smirnov distance of the randomised PIT from the uniform distribution.
    """

    rows: int
    nll: float
    ece: float
    crps: float
    rmse: float
    coverage_50: float
    coverage_80: float
    coverage_90: float
    pit_coverage_50: float
    pit_coverage_80: float
    pit_coverage_90: float
    pit_ks: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def uniform_edges(low: float, high: float, buckets: int = 10) -> Floats:
    """Edges [buckets + 1] of the paper's equal buckets on [low, high], rounded to float32 like targets."""
    if not low < high or buckets < 1:
        raise ValueError(f"buckets need low < high and at least one bucket, got [{low}, {high}] in {buckets}")
    return scores.bucket_edges(low, high, buckets)


def bucket_index(y: ArrayLike, edges: ArrayLike) -> Ints:
    """Bucket of each y [n] -> [n]; buckets are [l, u), and values outside belong to the first or last."""
    cuts = boundaries("edges", edges)
    return np.clip(np.searchsorted(cuts, finite("y", y, 1), side="right") - 1, 0, len(cuts) - 2)


def discretised_nll(masses: ArrayLike, y: ArrayLike, edges: ArrayLike, floor: float = 1e-12) -> float:
    """Mean -log P(bucket of y), for masses [n, b]; a mass below `floor` counts as `floor`."""
    probabilities, truth = _masses(masses, y, edges)
    return float(-np.mean(np.log(np.maximum(probabilities[np.arange(len(truth)), truth], floor))))


def reliability(masses: ArrayLike, y: ArrayLike, edges: ArrayLike, confidence_bins: int = 10) -> Reliability:
    """Confidence and accuracy of the most probable bucket, for masses [n, b], grouped by confidence."""
    if confidence_bins < 1:
        raise ValueError(f"confidence_bins must be at least 1, got {confidence_bins}")
    probabilities, truth = _masses(masses, y, edges)
    confidence = probabilities.max(axis=1)
    hit = probabilities.argmax(axis=1) == truth
    # arange / M gives correctly rounded decimals, so that a confidence of 0.7 equals the edge 0.7.
    cuts = np.arange(confidence_bins + 1) / confidence_bins
    group = np.clip(np.searchsorted(cuts, confidence, side="left") - 1, 0, confidence_bins - 1)
    counts = np.bincount(group, minlength=confidence_bins)
    return Reliability(
        confidence=_mean_by_group(confidence, group, counts),
        accuracy=_mean_by_group(hit, group, counts),
        counts=counts,
    )


def expected_calibration_error(masses: ArrayLike, y: ArrayLike, edges: ArrayLike, confidence_bins: int = 10) -> float:
    """The paper's ECE: sum over confidence bins of |I_m|/N |acc(I_m) - conf(I_m)|, for masses [n, b]."""
    return reliability(masses, y, edges, confidence_bins).expected_calibration_error


def crps(cdf: ArrayLike, grid: ArrayLike, y: ArrayLike) -> Floats:
    """Exact integral of (F(t) - 1{y <= t})^2 dt -> [n], F piecewise linear through (grid [g], cdf [n, g]).

    F is 0 before and 1 after the grid, so mass outside the grid becomes an atom at the nearer end, like the clipped
    target.
    """
    places, heights, values = _cdf(cdf, grid, y)
    inner = np.clip(values, places[0], places[-1])
    result = np.abs(values - inner)
    for rows in row_chunks(len(values), len(places)):
        result[rows] += scores.crps(heights[rows].astype(np.float64), places, inner[rows])
    return result


def crps_gaussian_mixture(y: ArrayLike, weights: ArrayLike, means: ArrayLike, scales: ArrayLike) -> Floats:
    """CRPS of sum_k w_k N(mean_k, scale_k^2) at y [n] -> [n], in closed form (Grimit et al. 2006).

    weights [k] or [n, k], means and scales [n, k]. The cost is n k^2, so use it as a cross-check for few components.
    """
    values, centres, widths = finite("y", y, 1), finite("means", means, 2), finite("scales", scales, 2)
    if len(centres) != len(values) or widths.shape != centres.shape:
        raise ValueError(
            f"means and scales must be [n, k] with n = {len(values)}, got {centres.shape} and {widths.shape}"
        )
    shares = np.asarray(weights, dtype=np.float64)
    if shares.shape not in (centres.shape, centres.shape[1:]):
        raise ValueError(f"weights must be [k] or [n, k] for means {centres.shape}, got {shares.shape}")
    if not (np.all(shares >= 0) and np.allclose(shares.sum(axis=-1), 1.0, rtol=0, atol=ROUNDING)):
        raise ValueError("weights must be non-negative and sum to 1")
    if np.any(widths <= 0):
        raise ValueError(f"scales must be positive, got {widths.min()}")
    shares = np.broadcast_to(shares, centres.shape)
    result = np.empty(len(values))
    for rows in row_chunks(len(values), centres.shape[1] ** 2):
        w, m, s = shares[rows], centres[rows], widths[rows]
        spread = np.hypot(s[:, :, None], s[:, None, :])
        pairs = _mean_absolute(m[:, :, None] - m[:, None, :], spread)
        to_truth = np.sum(w * _mean_absolute(values[rows, None] - m, s), axis=1)
        result[rows] = to_truth - 0.5 * np.einsum("ni,nij,nj->n", w, pairs, w)
    return result


def rmse(mean: ArrayLike, y: ArrayLike) -> float:
    """Root mean squared error of the predictive mean [n]."""
    predicted, values = finite("mean", mean, 1), finite("y", y, 1)
    if predicted.shape != values.shape:
        raise ValueError(f"mean and y must have the same length, got {len(predicted)} and {len(values)}")
    return float(np.sqrt(np.mean((predicted - values) ** 2)))


def pit(cdf: ArrayLike, grid: ArrayLike, y: ArrayLike, rng: np.random.Generator | None = None) -> Floats:
    """F(y) by linear interpolation of cdf [n, g] -> [n]; uniform on [0, 1] if the forecast is calibrated.

    With atoms the plain PIT is not uniform; with `rng`, the result is drawn uniformly between F(y-) and F(y) (the
    randomised PIT).
    """
    before, after = pit_sides(cdf, grid, y)
    return after if rng is None else before + rng.uniform(size=len(after)) * (after - before)


def pit_sides(cdf: ArrayLike, grid: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """F(y-) and F(y) [n]. Mass of the CDF outside the grid counts as an atom at its ends, as for the clipped target."""
    places, heights, values = _cdf(cdf, grid, y)
    before, after = np.empty(len(values)), np.empty(len(values))
    inner = np.clip(values, places[0], places[-1])
    for rows in row_chunks(len(values), len(places)):
        before[rows], after[rows] = scores.pit(heights[rows].astype(np.float64), places, inner[rows])
    before, after = np.clip(before, 0.0, 1.0), np.clip(after, 0.0, 1.0)
    outside = np.where(values < places[0], 0.0, 1.0)
    before = np.where(values <= places[0], 0.0, np.where(values > places[-1], outside, before))
    return before, np.where(values >= places[-1], 1.0, np.where(values < places[0], outside, after))


def masses_on(cdf: ArrayLike, grid: ArrayLike, edges: ArrayLike) -> Floats:
    """P(y in [l, u)) [n, b] of the buckets between edges [b + 1]; an atom on an edge belongs to the bucket above."""
    heights, places = np.asarray(cdf), knots("grid", grid)
    cuts = boundaries("edges", edges)
    masses = np.empty((len(heights), len(cuts) - 1))
    for rows in row_chunks(len(heights), len(places)):
        masses[rows] = scores.bucket_masses(heights[rows].astype(np.float64), places, cuts)
    return masses


def uniformity(values: ArrayLike) -> float:
    """Kolmogorov-Smirnov distance of PIT values [n] from the uniform distribution on [0, 1]."""
    ordered = np.sort(finite("PIT values", values, 1))
    count = len(ordered)
    above, below = np.arange(1, count + 1) / count - ordered, ordered - np.arange(count) / count
    return float(max(above.max(), below.max()))


def pit_histogram(values: ArrayLike, bins: int = 10) -> Floats:
    """Density [bins] of PIT values [n] on equal bins of [0, 1]: 1 everywhere for a calibrated forecast."""
    positions = finite("PIT values", values, 1)
    if positions.min() < 0 or positions.max() > 1:
        raise ValueError(f"PIT values must lie in [0, 1], got [{positions.min()}, {positions.max()}]")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    return np.histogram(positions, bins=bins, range=(0.0, 1.0))[0] * bins / len(positions)


def coverage(quantiles: ArrayLike, levels: ArrayLike, y: ArrayLike) -> Coverage:
    """Share of y [n] below each of quantiles [n, q] and inside each symmetric pair of levels [q]."""
    cuts, bounds, values = increasing("levels", levels), finite("quantiles", quantiles, 2), finite("y", y, 1)
    if cuts[0] <= 0 or cuts[-1] >= 1:
        raise ValueError(f"levels must lie strictly between 0 and 1, got {cuts[0]} to {cuts[-1]}")
    if bounds.shape != (len(values), len(cuts)):
        raise ValueError(f"quantiles must be [n, q] = {(len(values), len(cuts))}, got {bounds.shape}")
    reject_decrease("quantiles", bounds, ROUNDING * max(1.0, float(np.abs(bounds).max())))
    below = values[:, None] <= bounds
    mirrored = np.abs(cuts[:, None] + cuts[None, :] - 1.0) < 1e-9
    intervals: dict[float, float] = {}
    for lower, upper in zip(*np.nonzero(np.triu(mirrored, k=1)), strict=True):
        inside = below[:, upper] & (values >= bounds[:, lower])
        intervals[round(float(cuts[upper] - cuts[lower]), 9)] = float(inside.mean())
    shares = below.mean(axis=0)
    return Coverage(intervals, {float(level): float(share) for level, share in zip(cuts, shares, strict=True)})


def summary(
    *, masses: ArrayLike, edges: ArrayLike, cdf: ArrayLike, grid: ArrayLike, mean: ArrayLike, y: ArrayLike
) -> Metrics:
    """All metrics, for masses [n, b] on edges [b + 1], cdf [n, g] on grid [g], mean [n] and y [n].

    Closed coverage counts a y on an interval's end as inside; the randomised PIT has a fixed seed.
    """
    places, heights, values = _cdf(cdf, grid, y)
    before, after = pit_sides(heights, places, values)
    u = before + np.random.default_rng(PIT_SEED).uniform(size=len(values)) * (after - before)
    ends = {level: (0.5 - level / 2, 0.5 + level / 2) for level in (0.5, 0.8, 0.9)}
    closed = {level: float(np.mean((after >= low) & (before <= high))) for level, (low, high) in ends.items()}
    drawn = {level: float(np.mean((u >= low) & (u <= high))) for level, (low, high) in ends.items()}
    return Metrics(
        rows=len(values),
        nll=discretised_nll(masses, values, edges),
        ece=expected_calibration_error(masses, values, edges),
        crps=float(crps(heights, places, values).mean()),
        rmse=rmse(mean, values),
        coverage_50=closed[0.5],
        coverage_80=closed[0.8],
        coverage_90=closed[0.9],
        pit_coverage_50=drawn[0.5],
        pit_coverage_80=drawn[0.8],
        pit_coverage_90=drawn[0.9],
        pit_ks=uniformity(u),
    )


def _mean_absolute(mean: Floats, scale: Floats) -> Floats:
    """E|X| for X ~ N(mean, scale^2): the function A of Grimit et al. (2006)."""
    z = mean / scale
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    expected: Floats = mean * (2 * ndtr(z) - 1) + 2 * scale * density
    return expected


def _mean_by_group(values: NDArray[np.floating | np.bool_], group: Ints, counts: Ints) -> Floats:
    sums = np.bincount(group, weights=values, minlength=len(counts)).astype(np.float64)
    means: Floats = np.full(len(counts), np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _masses(masses: ArrayLike, y: ArrayLike, edges: ArrayLike) -> tuple[Floats, Ints]:
    """Checked masses [n, b] and the index [n] of the bucket that contains each y."""
    truth, cuts = bucket_index(y, edges), np.asarray(edges)
    return bucket_masses(masses, len(truth), len(cuts) - 1), truth


def _cdf(cdf: ArrayLike, grid: ArrayLike, y: ArrayLike) -> tuple[Floats, Heights, Floats]:
    """Checked grid [g], cdf [n, g] and y [n]."""
    places, values = knots("grid", grid), finite("y", y, 1)
    return places, distribution_function(cdf, len(values), len(places)), values
