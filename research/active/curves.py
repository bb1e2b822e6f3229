"""Quality by number of labels, its mean and spread over seeds, and the labels that a strategy saves compared with
random."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from learning.array_checks import Floats
from research.active.loop import LearningStep, StrategyRun

QUALITY = {"nll": "NLL", "crps": "CRPS", "cold_nll": "cold-start NLL", "cold_crps": "cold-start CRPS"}


@dataclass(frozen=True)
class Curve:
    """One strategy over s seeds and t steps: labels and share [t], quality by name [s, t]."""

    label: str
    steps: tuple[tuple[LearningStep, ...], ...]

    @property
    def seeds(self) -> int:
        return len(self.steps)

    @property
    def labels(self) -> Floats:
        return self._over_seeds("labels", np.mean)

    @property
    def share(self) -> Floats:
        return self._over_seeds("share", np.mean)

    def mean(self, quality: str) -> Floats:
        return self._over_seeds(quality, np.mean)

    def deviation(self, quality: str) -> Floats:
        """Standard deviation over seeds. Splits differ more than strategies do, so use `gain` to compare strategies."""
        return self._over_seeds(quality, np.std)

    def scoring_seconds(self) -> float:
        """CPU seconds to rank 10,000 rows."""
        return float(1e4 * self._values("scoring_seconds").sum() / max(self._values("scored_rows").sum(), 1))

    def bought(self, name: str) -> float:
        """Mean over the rows that the strategy chose, relative to the mean of the pool; the last step chooses none."""
        values = self._values(name)[:, :-1]
        return float(values.mean()) if values.size else 1.0

    def gain(self, other: "Curve", quality: str) -> tuple[float, float]:
        """How much lower its last value is than that of `other`, compared seed by seed: mean and standard error."""
        differences = other._values(quality)[:, -1] - self._values(quality)[:, -1]
        error = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else float("nan")
        return float(differences.mean()), float(error)

    def labels_to_reach(self, quality: str, target: float) -> float:
        """Number of labels at which the mean curve first reaches `target`, interpolated between steps; NaN if it never
        does."""
        values, labels = self.mean(quality), self.labels
        below = np.nonzero(values <= target)[0]
        if not len(below):
            return float("nan")
        first = int(below[0])
        if first == 0:
            return float(labels[0])
        share = (values[first - 1] - target) / (values[first - 1] - values[first])
        return float(labels[first - 1] + share * (labels[first] - labels[first - 1]))

    def _over_seeds(self, name: str, statistic: Callable[..., Floats]) -> Floats:
        return statistic(self._values(name), axis=0)

    def _values(self, name: str) -> Floats:
        return np.array([[getattr(step, name) for step in seed] for seed in self.steps], np.float64)


def curves(runs: Iterable[StrategyRun]) -> list[Curve]:
    """One curve per strategy, in the order of the runs; only seeds that are complete are included."""
    by_label: dict[str, list[tuple[LearningStep, ...]]] = {}
    for run in runs:
        if run.done:
            by_label.setdefault(run.label, []).append(tuple(run.steps()))
    return [Curve(label, tuple(steps)) for label, steps in by_label.items()]


def named(found: Sequence[Curve], label: str) -> Curve | None:
    return next((curve for curve in found if curve.label == label), None)
