"""The knots of a predictive CDF: bins that follow the data, and point masses as bins of zero width.

A target's distribution is described by non-decreasing `knots` and the masses of the segments between them. A value that
appears twice is an atom: the segment between its two entries has no width. CR predicts the masses of the segments, QR
reads its mixture at the knots; both use the same knots.

Every knot is a float32 value, so that numpy, torch and an exported graph put a target on the same side of it.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Binning = Literal["adaptive", "uniform"]

# A value with at least this share of the training rows is a point mass.
ATOM_SHARE = 0.01
# A target with at most this many distinct values is discrete: each of them is a point mass, so that quantiles and
# exceedance are exact at a value. On integers 0 to 100, 40 bins with edges midway between integers had a 1.1% better
# CRPS after 10 epochs, but P(y > v) would be off by half of v's mass.
MOST_VALUES = 128
# Minimum number of rows per distinct value for a discrete target; with fewer, there may just be few rows.
ROWS_A_VALUE = 10
# Weight of the mass when choosing the bin to split; the width has the remaining weight.
MASS_WEIGHT = 0.7
# Number of the paper's evaluation buckets; their edges are knots, so that the discretised NLL is exact.
EVALUATION_BUCKETS = 10
# A bin with fewer rows is split in the middle, not at its median.
LEAST_ROWS = 20
# A bin of positive width with a larger share of the rows is too coarse.
COARSE_SHARE = 0.1
# If the targets fill less than this share of the given range, most of the range is empty.
NARROW = 0.1


@dataclass(frozen=True)
class Bins:
    """Knots of a CDF and the segments between them that can have mass.

    knots [k]: non-decreasing; they bound k - 1 segments. classes [K]: increasing indexes of the segments that can have
    mass. These are all segments except for gaps, which are between neighbouring values of a discrete target, and beyond
    the data if they fill little of the range.
    """

    knots: Floats
    classes: Ints

    @property
    def widths(self) -> Floats:
        """Widths of the segments [k - 1]; 0 for an atom."""
        widths: Floats = np.diff(self.knots)
        return widths

    @property
    def atoms(self) -> Floats:
        """Values with a point mass."""
        values: Floats = self.knots[:-1][self.widths == 0]
        return values

    @property
    def class_of_segment(self) -> Ints:
        """Position in `classes` of each segment [k - 1]. Training never sees a value in a gap; such a value counts as
        the atom below."""
        return np.maximum(np.searchsorted(self.classes, np.arange(len(self.knots) - 1), side="right") - 1, 0)

    def segments(self, y: ArrayLike) -> Ints:
        """The segment of each y [n]: the atom at y if there is one, else [knot, next knot). Values outside the knots
        belong to the first or last segment."""
        values = _float32(y)
        first = np.searchsorted(self.knots, values, side="left")
        last = np.searchsorted(self.knots, values, side="right") - 1
        return np.clip(np.minimum(first, last), 0, len(self.knots) - 2)

    def shares(self, y: ArrayLike) -> Floats:
        """The share [k - 1] of y [n] in each segment."""
        segments = self.segments(y)
        return np.bincount(segments, minlength=len(self.knots) - 1) / max(1, len(segments))

    def coarsest(self, y: ArrayLike) -> tuple[float, float, float]:
        """The bin of positive width with the largest share of y [n]: its ends and that share."""
        shares = np.where(self.widths > 0, self.shares(y), 0.0)
        worst = int(np.argmax(shares))
        return float(self.knots[worst]), float(self.knots[worst + 1]), float(shares[worst])


def uniform_bins(low: float, high: float, count: int) -> Bins:
    """The paper's bins: `count` equal bins without atoms."""
    return Bins(_float32(np.linspace(low, high, count + 1)), np.arange(count))


def grid_bins(low: float, high: float, count: int) -> Bins:
    """`count` equal bins and an atom at each end for the mass beyond it; used to read a mixture in target units."""
    inner = _float32(np.linspace(low, high, count + 1))
    return Bins(np.concatenate([inner[:1], inner, inner[-1:]]), np.arange(count + 2))


def adaptive_bins(sample: ArrayLike, low: float, high: float, count: int) -> Bins:
    """About `count` classes for targets distributed as `sample` [n], clipped to [low, high].

    Atoms are chosen first. Then, starting from the paper's evaluation buckets, the bin with the largest 0.7 mass + 0.3
    width (as shares of the mass outside atoms and of the range) is split at its median until there are `count` classes.
    A split is halfway between two observed values. Only ranks and relative widths matter, so the target's unit does
    not. A discrete target has no bins except its values; the gaps between them have no mass. If the sample fills less
    than NARROW of the range, the buckets span the sample, and the rest of the range has no mass either: a probability
    of 1e-4 in a bin that extends a hundred times as far would shift the mean.
    """
    low, high = float(np.float32(low)), float(np.float32(high))
    y = np.clip(np.sort(_float32(sample)), low, high)
    values, counts = np.unique(y, return_counts=True)
    discrete = len(values) <= MOST_VALUES and len(y) >= ROWS_A_VALUE * len(values)
    atoms = values if discrete else values[counts >= ATOM_SHARE * len(y)]
    rest = y[~np.isin(y, atoms)]
    first, last = (low, high)
    if 0.0 < y[-1] - y[0] < NARROW * (high - low):
        # The largest value must be inside the last bucket, not on its upper edge.
        first, last = float(y[0]), min(high, float(np.nextafter(np.float32(y[-1]), np.float32(np.inf))))
    edges = _float32(np.linspace(first, last, EVALUATION_BUCKETS + 1))
    edges = np.array([low, high]) if discrete else np.unique(np.concatenate([[low], edges, [high]]))
    bounds = np.unique(np.concatenate([edges[~_in_gap(edges, atoms, rest)], atoms]))
    stretches = [
        (a, b, rest[(rest > a) & (rest < b)] if a in atoms else rest[(rest >= a) & (rest < b)])
        for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    gaps = {(a, b) for a, b, inside in stretches if not len(inside) and a in atoms and b in atoms}
    gaps |= {(a, b) for a, b, _ in stretches if not discrete and (b <= first or a >= last)}
    wanted = 0 if discrete else max(count - len(atoms), count // 2)
    inner = [stretch for stretch in stretches if stretch[:2] not in gaps]
    bins = _split(inner, wanted, max(1, len(rest)), last - first)
    segments = sorted([*bins, *gaps, *((value, value) for value in atoms.tolist())])
    knots = np.array([segments[0][0], *(upper for _, upper in segments)])
    classes = np.flatnonzero([segment not in gaps for segment in segments])
    return Bins(knots, classes)


Stretch = tuple[float, float, Floats]


def _split(stretches: list[Stretch], wanted: int, rows: int, span: float) -> list[tuple[float, float]]:
    """Split bins until there are `wanted` bins, or no bin can be split."""

    def weight(stretch: Stretch) -> float:
        low, high, inside = stretch
        return MASS_WEIGHT * len(inside) / rows + (1.0 - MASS_WEIGHT) * (high - low) / span

    open_: list[Stretch] = list(stretches)
    done: list[Stretch] = []
    while open_ and len(open_) + len(done) < wanted:
        widest = max(range(len(open_)), key=lambda index: weight(open_[index]))
        low, high, inside = open_.pop(widest)
        cut = _cut(low, high, inside)
        if cut is None:
            done.append((low, high, inside))
        else:
            place = int(np.searchsorted(inside, cut, side="left"))
            open_ += [(low, cut, inside[:place]), (cut, high, inside[place:])]
    return [(low, high) for low, high, _ in open_ + done]


def _cut(low: float, high: float, inside: Floats) -> float | None:
    """The point at which to split a bin: halfway between the two observed values next to the median, or the middle of a
    bin with few rows. None if the bin can't be split."""
    if len(inside) < LEAST_ROWS:
        middle = float(np.float32(0.5 * (low + high)))
        return middle if low < middle < high else None
    if inside[0] == inside[-1]:
        return None
    half = len(inside) / 2
    median = inside[len(inside) // 2]
    first, behind = (int(np.searchsorted(inside, median, side=side)) for side in ("left", "right"))
    place = first if first > 0 and (behind == len(inside) or half - first <= behind - half) else behind
    below, above = float(inside[place - 1]), float(inside[place])
    middle = float(np.float32(0.5 * (below + above)))
    # There is no float32 value between neighbouring float32 values.
    cut = middle if middle > below else above
    return cut if low < cut < high else None


def _in_gap(edges: Floats, atoms: Floats, rest: Floats) -> npt.NDArray[np.bool_]:
    """Whether each edge is strictly between two atoms with no other values between them, where the CDF is flat."""
    after = np.searchsorted(atoms, edges, side="left")
    between = (after > 0) & (after < len(atoms))
    below = atoms[np.clip(after - 1, 0, None)] if len(atoms) else edges
    above = atoms[np.clip(after, None, len(atoms) - 1)] if len(atoms) else edges
    empty = np.searchsorted(rest, above, side="left") == np.searchsorted(rest, below, side="right")
    inside: npt.NDArray[np.bool_] = between & (edges != above) & empty
    return inside


def _float32(values: ArrayLike) -> Floats:
    """The values rounded to float32 precision, as a float64 array."""
    return np.asarray(values, np.float64).astype(np.float32).astype(np.float64)
