"""Joint effects of two ids, by variational Bayes. Needs only numpy.

    y - side - other effects = a_u + b_v + p_u . q_v + noise

P_u = [a_u, p_u] and Q_v = [b_v, q_v] are Gaussian with covariances C_u and C_v [r + 1, r + 1]. They are fitted by 15
sweeps of exact mean-field updates, of u and then of v. The priors of intercepts and factors and the noise are fitted by
empirical Bayes. With qt = [1, q_v] and pt = [1, p_u], the variance of the sum is

    qt' C_u qt + pt' C_v pt + tr(C_u^ff C_v^ff)

Mean-field variances are too small, because they ignore the dependence between u and v. They are therefore multiplied by
`inflation`, which is fitted to held-out rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ghostless.heads.effects import LEAST_PRIOR, SWEEPS, Codes, EffectRows, Effects, Floats, Ints

# Initial standard deviations of the factors for a standardised target; their product has a tenth of the target's
# variance.
START_FIRST, START_SECOND = 0.3, 0.5


@dataclass(frozen=True)
class Factors:
    """pair: features u and v. means: [rows, r + 1] of each, the intercept first; covariances: [rows, r + 1, r + 1].

    The product p_u . q_v is in target units: u's columns have the target's scale, and v's factors are dimensionless.
    noise: sigma^2. Row 0 stands for an unknown id; its mean is 0, and its covariance is the prior's.
    """

    pair: tuple[str, str]
    means: tuple[Floats, Floats]
    covariances: tuple[Floats, Floats]
    noise: float
    inflation: float = 1.0

    @property
    def rank(self) -> int:
        return int(self.means[0].shape[1]) - 1

    def mean_of(self, codes: Codes) -> Floats:
        """a_u + b_v + p_u . q_v [n]."""
        first, second = (mean[codes[name]] for name, mean in zip(self.pair, self.means, strict=True))
        total: Floats = first[:, 0] + second[:, 0] + (first[:, 1:] * second[:, 1:]).sum(1)
        return total

    def variance_of(self, codes: Codes) -> Floats:
        """Variance of the sum [n], inflated."""
        first, second = self.pair
        total: Floats = (self.left()[codes[first]] * self.right()[codes[second]]).sum(1)
        return total

    def roots(self, codes: Codes, name: str) -> Floats:
        """Roots [n, r + 1]: rows that share the id of `name`, but not the other id, have covariance root_i . root_j."""
        side = self.pair.index(name)
        lower = np.linalg.cholesky(self.inflation * self.covariances[side])
        known = self.means[1 - side][codes[self.pair[1 - side]]].copy()
        known[:, 0] = 1.0
        roots: Floats = np.einsum("nij,ni->nj", lower[codes[name]], known)
        return roots

    def inflated(self, codes: Codes, residual: Floats, others: Floats) -> "Factors":
        """A copy with the inflation for which the variances match the squared residuals [n] of held-out rows. others
        [n]: variance of the remaining effects."""
        own = float(np.mean(replace(self, inflation=1.0).variance_of(codes)))
        missing = float(np.mean(residual**2 - others)) - self.noise - own
        return replace(self, inflation=1.0 + max(0.0, missing / own))

    def informed(self, name: str, information: tuple[float, float]) -> "Factors":
        """A copy with the covariances as if every row carried this many times as much information about the intercept
        and about the factors of `name`."""
        side = self.pair.index(name)
        covariance = self.covariances[side]
        prior = np.linalg.inv(covariance[0])
        each = np.sqrt([information[0], *[information[1]] * self.rank])
        found = np.linalg.inv(prior + np.outer(each, each) * (np.linalg.inv(covariance) - prior))
        first, second = (found if place == side else kept for place, kept in enumerate(self.covariances))
        return replace(self, covariances=(first, second))

    def at(self, rows: Mapping[str, Ints]) -> "Factors":
        """A copy with only these rows [k] of both tables, in this order."""
        first, second = (rows[name] for name in self.pair)
        means = self.means[0][first], self.means[1][second]
        return replace(self, means=means, covariances=(self.covariances[0][first], self.covariances[1][second]))

    def left(self) -> Floats:
        """[rows of u, 2 m]: C_u and pt pt', multiplied by the inflation. m: number of entries of an upper triangle."""
        whole = _triangle(self.rank + 1)
        own = self.covariances[0][:, whole[0], whole[1]] * _twice(whole)
        return self.inflation * np.concatenate([own, _products(self._known(0))], 1)

    def right(self) -> Floats:
        """[rows of v, 2 m]: qt qt' + C_v^ff, and C_v. The second half of the products with `left` sums to pt' C_v pt,
        the variance that remains if u is treated as known."""
        whole = _triangle(self.rank + 1)
        covariance = self.covariances[1][:, whole[0], whole[1]]
        # The intercept's factor is the number 1, which has no variance.
        second = _products(self._known(1)) + np.where(whole[0] > 0, covariance, 0.0)
        return np.concatenate([second, covariance * _twice(whole)], 1)

    def _known(self, side: int) -> Floats:
        """pt or qt [rows, r + 1]."""
        known = self.means[side].copy()
        known[:, 0] = 1.0
        return known


Triangle = tuple[np.ndarray, np.ndarray]


def _triangle(size: int) -> Triangle:
    return np.triu_indices(size)


def _twice(triangle: Triangle) -> Floats:
    """Weights of the upper triangle of a symmetric matrix: 1 on the diagonal, 2 off it."""
    return np.where(triangle[0] == triangle[1], 1.0, 2.0)


def _products(known: Floats) -> Floats:
    """Upper triangle of known known' [n, m]."""
    rows, columns = _triangle(known.shape[1])
    product: Floats = known[:, rows] * known[:, columns]
    return product


def fit_factors(
    rows: EffectRows, effects: Effects, pair: tuple[str, str], rank: int, sweeps: int = SWEEPS, seed: int = 0
) -> Factors:
    """Fit factors of rank `rank` for two features; everything else is taken from `effects`."""
    return _Fit(rows, effects, pair, rank, seed).run(sweeps)


class _Fit:
    """One fit on the standardised target."""

    def __init__(self, rows: EffectRows, effects: Effects, pair: tuple[str, str], rank: int, seed: int) -> None:
        self.rows, self.effects, self.pair, self.rank = rows, effects, pair, rank
        self.places = [rows.names.index(name) for name in pair]
        heights = [rows.heights[place] for place in self.places]
        self.scale = float(np.std(rows.y, dtype=np.float64)) or 1.0
        random = np.random.default_rng(seed)
        self.means = []
        for name, height, start in zip(pair, heights, (START_FIRST, START_SECOND), strict=True):
            mean = random.normal(size=(height, rank + 1)) * start / np.sqrt(max(rank, 1)) ** 0.5
            mean[:, 0] = effects.mean[name] / self.scale
            self.means.append(mean)
        self.noise = effects.noise / self.scale**2
        self.priors = [
            np.array([effects.priors[name] / self.scale**2, *[start**2] * rank])
            for name, start in zip(pair, (START_FIRST, START_SECOND), strict=True)
        ]
        self.covariances = [
            np.tile(np.diag(0.1 * prior), (height, 1, 1)) for prior, height in zip(self.priors, heights, strict=True)
        ]
        self.seen = [
            np.bincount(rows.codes[:, place], minlength=height) > 0
            for place, height in zip(self.places, heights, strict=True)
        ]
        for seen in self.seen:
            seen[0] = False

    def run(self, sweeps: int) -> Factors:
        # Standardised residuals of the effects of all other features; one pass.
        fit = self.rows.fitted(self.effects)
        own = sum(
            self.effects.mean[name][self.rows.codes[:, at]] for name, at in zip(self.pair, self.places, strict=True)
        )
        self.target = (self.rows.y.astype(np.float64) - fit + own) / self.scale
        for _ in range(sweeps):
            self._update(0)
            self._update(1)
            self._fit_noise()
        for side in (0, 1):
            self.means[side][0] = 0.0
            self.covariances[side][0] = np.diag(self.priors[side])
        scale, square = self.scale, self.scale**2
        second = np.array([scale, *[1.0] * self.rank])
        return Factors(
            self.pair,
            (self.means[0] * scale, self.means[1] * second),
            (self.covariances[0] * square, self.covariances[1] * np.outer(second, second)),
            self.noise * square,
        )

    def _update(self, side: int) -> None:
        """Posterior of one side's [intercept, factors], given the other's."""
        other = 1 - side
        width = self.rank + 1
        height = len(self.means[side])
        upper = _triangle(width)
        precision, moment = np.zeros((height, len(upper[0]))), np.zeros((height, width))
        mean, covariance = self.means[other], self.covariances[other]
        for chunk, own, beside in self._chunks(side):
            known = mean[beside].copy()
            residual = self.target[chunk] - known[:, 0]
            known[:, 0] = 1.0
            squares = known[:, upper[0]] * known[:, upper[1]]
            blocks = covariance[beside]
            blocks[:, 0, :] = 0.0
            blocks[:, :, 0] = 0.0
            squares += blocks[:, upper[0], upper[1]]
            # The intercept and factors of the other side are correlated, so E[b q] includes their covariance.
            weighted = known * residual[:, None]
            weighted[:, 1:] -= covariance[beside, 0, 1:]
            for at in range(len(upper[0])):
                precision[:, at] += np.bincount(own, squares[:, at], height)
            for at in range(width):
                moment[:, at] += np.bincount(own, weighted[:, at], height)
        matrix = np.zeros((height, width, width))
        matrix[:, upper[0], upper[1]] = precision
        matrix[:, upper[1], upper[0]] = precision
        matrix = matrix / self.noise + np.diag(1.0 / self.priors[side])
        inverse: Floats = np.linalg.inv(matrix).astype(np.float64, copy=False)
        found = np.einsum("nij,nj->ni", inverse, moment / self.noise)
        found[0] = 0.0
        inverse[0] = np.diag(self.priors[side])
        self.means[side], self.covariances[side] = found, inverse
        seen = self.seen[side]
        if seen.any():
            each = np.mean(found[seen] ** 2 + np.diagonal(inverse[seen], axis1=1, axis2=2), axis=0)
            prior = np.array([each[0], *[each[1:].mean()] * self.rank])
            self.priors[side] = np.maximum(prior, LEAST_PRIOR * self.noise)

    def _fit_noise(self) -> None:
        found = Factors(self.pair, (self.means[0], self.means[1]), (self.covariances[0], self.covariances[1]), 0.0)
        left, right = found.left(), found.right()
        total = 0.0
        for chunk, own, beside in self._chunks(0):
            fit = self.means[0][own, 0] + self.means[1][beside, 0]
            fit += (self.means[0][own, 1:] * self.means[1][beside, 1:]).sum(1)
            total += float(np.sum((self.target[chunk] - fit) ** 2) + np.einsum("nm,nm->", left[own], right[beside]))
        self.noise = total / max(1, len(self.target))

    def _chunks(self, side: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Chunks of rows, with their codes for this side and the other."""
        for chunk in self.rows.chunks():
            yield chunk, self.rows.codes[chunk, self.places[side]], self.rows.codes[chunk, self.places[1 - side]]
