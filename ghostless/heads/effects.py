"""Effects of ids by empirical Bayes: what the rows of an id have in common, and how uncertain it is. Needs only numpy.

    y = side + sum_f alpha_f[id] + noise,   alpha_f ~ N(0, t_f^2),   noise ~ N(0, sigma^2)

`side` is a ridge regression on everything except the ids. There are 15 Gauss-Seidel sweeps over the features:

    v_f = 1 / (1 / t_f^2 + n_f / sigma^2),   alpha_f = v_f / sigma^2 * sum of the id's residuals without alpha_f
    t_f^2 = mean over seen ids of alpha_f^2 + Var(alpha_f),   sigma^2 = mean of (y - fit)^2 + Var(fit)

Variances of crossed features add up: Var(fit) = sum_f v_f. An id that belongs to one parent (a video to its author)
shares all its rows with it. For such an id, v_f is the variance given the parent's effect, with the precision P_f of
the data instead of n_f / sigma^2:

    P_f = sum over the children c of 1 / (t_c^2 + 1 / P_c)
    Var(sum along the chain) = v_f + (v_f / t_f^2)^2 Var(sum above)

which is exact (an unknown child: t_f^2 + Var(sum above)). Row 0, the unknown id, is never fitted: alpha = 0, v = t_f^2.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Codes = Mapping[str, npt.NDArray[Any]]

SWEEPS = 15
# Minimum prior variance relative to sigma^2, so that 1 / t^2 stays finite.
LEAST_PRIOR = 1e-6
# Ridge penalty of the side features, in rows.
RIDGE_ROWS = 10.0
# Minimum share of rows with a repeated id for detecting a parent: with fewer, it means little that all rows of an id
# have the same parent.
REPEATED_SHARE = 0.01
# Number of rows that a pass reads at a time, and number of rows above which the rows are stored in files.
CHUNK_ROWS = 1 << 18
MOST_IN_MEMORY = 1 << 23


@dataclass(frozen=True)
class Effects:
    """Fitted effects, in target units. Arrays [rows of the id's table], row 0 for an unknown id.

    mean: alpha_f. variance: v_f, given the parent's effect if there is one. priors: t_f^2. parents: the parent of each
    nested feature. noise: sigma^2. side: coefficients of the side columns, starting with the intercept.
    """

    mean: Mapping[str, Floats]
    variance: Mapping[str, Floats]
    priors: Mapping[str, float]
    parents: Mapping[str, str]
    noise: float
    side: Floats

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.mean)

    def carried(self, name: str) -> Floats:
        """(v_f / t_f^2)^2 [rows]: the share of the parent's variance that the id's own rows have not removed."""
        shares: Floats = (self.variance[name] / self.priors[name]) ** 2
        return shares

    def variance_of(self, codes: Codes, names: Iterable[str] | None = None) -> Floats:
        """e_raw [n]: Var(sum of the effects of `names`), by default of all features. codes: table rows [n] of every
        feature.

        The effects of other features are treated as known, also inside a chain.
        """
        chosen = tuple(self.names if names is None else names)
        total = np.zeros(len(codes[self.names[0]])) if self.names else np.zeros(0)
        parents = set(self.parents.values())
        for name in self.names:
            if name not in parents:
                total = total + self._chain(name, codes, chosen)
        return total

    def _chain(self, name: str, codes: Codes, chosen: Sequence[str]) -> Floats:
        rows = codes[name]
        own = self.variance[name][rows] if name in chosen else np.zeros(len(rows))
        parent = self.parents.get(name)
        if parent is None:
            return own
        above = self._chain(parent, codes, chosen)
        total: Floats = own + (self.carried(name)[rows] if name in chosen else 1.0) * above
        return total

    def informed(self, name: str, information: float) -> "Effects":
        """A copy with the variances as if every row carried `information` times as much information about the effects
        of `name`."""
        prior = 1.0 / self.priors[name]
        variance = 1.0 / (prior + information * (1.0 / self.variance[name] - prior))
        return replace(self, variance={**self.variance, name: variance})

    def at(self, rows: Mapping[str, Ints]) -> "Effects":
        """A copy with only these rows [k] of every table, in this order."""
        mean, variance = (
            {name: values[rows[name]] for name, values in tables.items()} for tables in (self.mean, self.variance)
        )
        return replace(self, mean=mean, variance=variance)

    def below(self, name: str) -> tuple[str, ...]:
        """The features nested in `name`, nearest first."""
        child = next((child for child, parent in self.parents.items() if parent == name), None)
        return () if child is None else (child, *self.below(child))

    def mean_of(self, codes: Codes) -> Floats:
        """sum_f alpha_f [n], without side."""
        total = np.zeros(len(codes[self.names[0]])) if self.names else np.zeros(0)
        for name in self.names:
            total = total + self.mean[name][codes[name]]
        return total


@dataclass(frozen=True)
class SideColumns:
    """Features of a row other than its ids. buckets [n, b]: codes below `sizes` [b]; numbers [n, c]: used with their
    squares."""

    buckets: npt.NDArray[Any]
    numbers: npt.NDArray[Any]


class EffectRows:
    """Rows to fit effects to: codes [n, F], side columns and y [n]. They are in memory or in memory-mapped files."""

    def __init__(
        self,
        names: Sequence[str],
        heights: Sequence[int],
        sizes: Sequence[int],
        codes: npt.NDArray[Any],
        side: SideColumns,
        y: npt.NDArray[Any],
    ) -> None:
        """heights: number of rows of each id's table, including row 0. sizes: number of codes of each bucket
        feature."""
        self.names, self.heights, self.sizes = tuple(names), tuple(heights), tuple(sizes)
        self.codes, self.side, self.y = codes, side, y

    @classmethod
    def gather(
        cls,
        names: Sequence[str],
        heights: Sequence[int],
        sizes: Sequence[int],
        numbers: int,
        rows: int,
        batches: Iterable[tuple[npt.NDArray[Any], SideColumns, npt.NDArray[Any]]],
        most_in_memory: int = MOST_IN_MEMORY,
    ) -> "EffectRows":
        """Collect at most `rows` rows from batches of (codes, side, y), in one pass. If `rows` exceeds
        `most_in_memory`, they are written to files."""

        def room(columns: tuple[int, ...], kind: Any) -> npt.NDArray[Any]:
            shape = (rows, *columns)
            if rows <= most_in_memory or 0 in shape:
                return np.empty(shape, kind)
            # A file without a name; it is removed together with its mapping.
            with tempfile.TemporaryFile() as file:
                return np.memmap(file, kind, "w+", shape=shape)

        codes, buckets = room((len(names),), np.int32), room((len(sizes),), np.int32)
        values, y = room((numbers,), np.float32), room((), np.float32)
        start = 0
        for some_codes, some_side, some_y in batches:
            stop = start + len(some_y)
            codes[start:stop], y[start:stop] = some_codes, some_y
            buckets[start:stop], values[start:stop] = some_side.buckets, some_side.numbers
            start = stop
        side = SideColumns(buckets[:start], values[:start])
        return cls(names, heights, sizes, codes[:start], side, y[:start])

    def fit(self, sweeps: int = SWEEPS) -> Effects:
        """Effects and variances of these rows."""
        return _Fit(self).run(sweeps)

    def leave_one_out(self, effects: Effects) -> tuple[Floats, Floats]:
        """Prediction and W = sum_f v_f^- [n] of each of these rows, as if it had not been used for fitting.

        v_f^- = 1 / (1 / t_f^2 + (n_f - 1) / sigma^2), h = W / (W + sigma^2), loo = (fit - h y) / (1 - h).
        """
        spread = np.zeros(len(self.y))
        for place, name in enumerate(self.names):
            codes = self.codes[:, place]
            counts = np.bincount(codes, minlength=self.heights[place])
            others = np.maximum(counts - 1, 0) / effects.noise
            spread += (1.0 / (1.0 / effects.priors[name] + others))[codes]
        fit = self.fitted(effects)
        leverage = spread / (spread + effects.noise)
        return (fit - leverage * self.y) / (1.0 - leverage), spread

    def fitted(self, effects: Effects) -> Floats:
        """side + sum_f alpha_f of these rows [n]."""
        side = _Side(self)
        parts = [side.predict(chunk, effects.side) for chunk in self.chunks()]
        return np.concatenate(parts) + effects.mean_of(self.codes_by_name())

    def codes_by_name(self) -> dict[str, npt.NDArray[Any]]:
        """Table rows [n] of every feature."""
        return {name: self.codes[:, place] for place, name in enumerate(self.names)}

    def chunks(self) -> Iterator[slice]:
        for start in range(0, len(self.y), CHUNK_ROWS):
            yield slice(start, start + CHUNK_ROWS)

    def parents(self) -> dict[str, str]:
        """The parent of each nested feature: the finest feature that is constant over the rows of each id.

        A parent has only one child. If several features have the same parent, the coarsest is its child, and the others
        count as crossed.
        """
        seen = [len(np.unique(self.codes[:, place])) for place in range(len(self.names))]
        finer: dict[int, int] = {}
        for child in range(len(self.names)):
            if len(self.y) - seen[child] < max(1.0, REPEATED_SHARE * len(self.y)):
                continue
            above = [at for at in range(len(self.names)) if seen[at] < seen[child] and self._nested(child, at)]
            if above:
                finer[child] = max(above, key=lambda at: seen[at])
        chosen: dict[str, str] = {}
        for parent in sorted(set(finer.values())):
            child = min((at for at, to in finer.items() if to == parent), key=lambda at: seen[at])
            chosen[self.names[child]] = self.names[parent]
        return chosen

    def parent_rows(self, child: int, parent: int) -> Ints:
        """The parent's table row for every row of the child's table; 0 if the child has no rows."""
        rows = np.zeros(self.heights[child], np.int64)
        for chunk in self.chunks():
            rows[self.codes[chunk, child]] = self.codes[chunk, parent]
        rows[0] = 0
        return rows

    def _nested(self, child: int, parent: int) -> bool:
        rows = self.parent_rows(child, parent)
        return all(
            np.array_equal(
                rows[self.codes[chunk, child]], np.where(self.codes[chunk, child], self.codes[chunk, parent], 0)
            )
            for chunk in self.chunks()
        )


class _Side:
    """Ridge regression on [1, one-hot buckets, numbers, their squares]; the Gram matrix is inverted once."""

    def __init__(self, rows: EffectRows) -> None:
        self.rows = rows
        self.starts = np.cumsum([1, *rows.sizes])
        self.numbers = rows.side.numbers.shape[1]
        self.width = int(self.starts[-1]) + 2 * self.numbers

    def gram(self) -> Floats:
        """X'X [width, width]."""
        gram = np.zeros((self.width, self.width))
        for chunk in self.rows.chunks():
            places, values = self._columns(chunk)
            gram[0, 0] += len(values)
            for at in range(places.shape[1]):
                gram[0] += np.bincount(places[:, at], minlength=self.width)
                for other in range(at, places.shape[1]):
                    cells = places[:, at] * self.width + places[:, other]
                    gram += np.bincount(cells, minlength=self.width**2).reshape(self.width, -1)
            start = int(self.starts[-1])
            gram[0, start:] += values.sum(0)
            gram[start:, start:] += np.triu(values.T @ values)
            for at in range(places.shape[1]):
                for column in range(values.shape[1]):
                    gram[:, start + column] += np.bincount(places[:, at], values[:, column], self.width)
        return np.triu(gram) + np.triu(gram, 1).T

    def moments(self, chunk: slice, residual: Floats) -> Floats:
        """X'r [width] of the rows in `chunk`."""
        places, values = self._columns(chunk)
        found = np.zeros(self.width)
        found[0] = residual.sum()
        for at in range(places.shape[1]):
            found += np.bincount(places[:, at], residual, self.width)
        found[int(self.starts[-1]) :] += residual @ values
        return found

    def predict(self, chunk: slice, coefficients: Floats) -> Floats:
        places, values = self._columns(chunk)
        total: Floats = coefficients[0] + coefficients[places].sum(1) + values @ coefficients[int(self.starts[-1]) :]
        return total

    def _columns(self, chunk: slice) -> tuple[Ints, Floats]:
        """Positions of the one-hot columns [m, b], and numbers with their squares [m, 2 c]."""
        side = self.rows.side
        places = side.buckets[chunk].astype(np.int64) + self.starts[:-1]
        values = side.numbers[chunk].astype(np.float64)
        return places, np.concatenate([values, values**2], 1)


class _Fit:
    """One fit. Targets are standardised, so that constants do not depend on their unit."""

    def __init__(self, rows: EffectRows) -> None:
        self.rows = rows
        y = rows.y
        self.centre = float(np.mean(y, dtype=np.float64))
        self.scale = float(np.std(y, dtype=np.float64)) or 1.0
        self.side = _Side(rows)
        penalty = np.full(self.side.width, RIDGE_ROWS)
        penalty[0] = 1e-3
        self.inverse = np.linalg.inv(self.side.gram() + np.diag(penalty))
        self.coefficients = np.zeros(self.side.width)
        self.alphas = [np.zeros(height) for height in rows.heights]
        self.counts = [self._total(place, None) for place in range(len(rows.names))]
        self.noise = 1.0
        self.priors = [0.1] * len(rows.names)
        named = rows.parents()
        index = {name: place for place, name in enumerate(rows.names)}
        self.parents = {index[child]: index[parent] for child, parent in named.items()}
        self.above = {child: rows.parent_rows(child, parent) for child, parent in self.parents.items()}
        self.named = named

    def run(self, sweeps: int) -> Effects:
        self._fit_side()
        for _ in range(sweeps):
            for place in range(len(self.rows.names)):
                self._fit_effect(place)
            self._fit_side()
            self._fit_noise()
        # The last update of the means uses the final variances.
        variances = self._variances()
        square = self.scale**2
        coefficients = self.coefficients * self.scale
        coefficients[0] += self.centre
        names = self.rows.names
        return Effects(
            mean={name: alpha * self.scale for name, alpha in zip(names, self.alphas, strict=True)},
            variance={name: v * square for name, v in zip(names, variances, strict=True)},
            priors={name: prior * square for name, prior in zip(names, self.priors, strict=True)},
            parents=self.named,
            noise=self.noise * square,
            side=coefficients,
        )

    def _fit_effect(self, place: int) -> None:
        total = self._total(place, self._residual) + self.counts[place] * self.alphas[place]
        total[0] = 0.0
        own = 1.0 / (1.0 / self.priors[place] + self.counts[place] / self.noise)
        self.alphas[place] = own / self.noise * total
        seen = self.counts[place] > 0
        seen[0] = False
        if seen.any():
            spread = self._marginal(place)[seen]
            found = float(np.mean(self.alphas[place][seen] ** 2 + spread))
            self.priors[place] = max(found, LEAST_PRIOR * self.noise)

    def _fit_side(self) -> None:
        found = np.zeros(self.side.width)
        for chunk in self.rows.chunks():
            residual = self._residual(chunk) + self.side.predict(chunk, self.coefficients)
            found += self.side.moments(chunk, residual)
        self.coefficients = self.inverse @ found

    def _fit_noise(self) -> None:
        total, rows = 0.0, max(1, len(self.rows.y))
        variances = self._variances()
        for chunk in self.rows.chunks():
            total += float(np.sum(self._residual(chunk) ** 2))
        parents = set(self.parents.values())
        for place in range(len(self.rows.names)):
            if place not in parents:
                total += float(self.counts[place] @ self._joint(place, variances))
        self.noise = total / rows

    def _residual(self, chunk: slice) -> Floats:
        fit = self.side.predict(chunk, self.coefficients)
        for place, alpha in enumerate(self.alphas):
            fit += alpha[self.rows.codes[chunk, place]]
        return (self.rows.y[chunk].astype(np.float64) - self.centre) / self.scale - fit

    def _total(self, place: int, values: Any) -> Floats:
        """The sum of values(chunk) for each id, or the number of rows of each id if `values` is None."""
        total = np.zeros(self.rows.heights[place])
        for chunk in self.rows.chunks():
            weights = None if values is None else values(chunk)
            total += np.bincount(self.rows.codes[chunk, place], weights, len(total)).astype(np.float64)
        return total

    def _precisions(self) -> list[Floats]:
        """P_f by feature: the precision with which the data determine the sum of alpha_f and all effects above it."""
        precisions = [counts / self.noise for counts in self.counts]
        # Children first: a child has more ids than its parent.
        for child in sorted(self.parents, key=lambda at: -int((self.counts[at] > 0).sum())):
            below = precisions[child]
            message = np.where(below > 0, 1.0 / (self.priors[child] + 1.0 / np.maximum(below, 1e-300)), 0.0)
            parent = self.parents[child]
            precisions[parent] = np.bincount(self.above[child], message, len(precisions[parent])).astype(np.float64)
        for precision in precisions:
            precision[0] = 0.0
        return precisions

    def _variances(self) -> list[Floats]:
        """v_f by feature, given the effects above."""
        return [1.0 / (1.0 / t2 + p) for t2, p in zip(self.priors, self._precisions(), strict=True)]

    def _joint(self, place: int, variances: list[Floats]) -> Floats:
        """Var(alpha_f + all effects above it) [rows of the table]."""
        own = variances[place]
        if place not in self.parents:
            return own
        above = self._joint(self.parents[place], variances)[self.above[place]]
        return own + (own / self.priors[place]) ** 2 * above

    def _marginal(self, place: int) -> Floats:
        """Var(alpha_f) [rows of the table]: alpha_f = (1 - v_f / t_f^2) (estimate from the data - effects above)."""
        variances = self._variances()
        own = variances[place]
        if place not in self.parents:
            return own
        above = self._joint(self.parents[place], variances)[self.above[place]]
        marginal: Floats = own + (1.0 - own / self.priors[place]) ** 2 * above
        return marginal
