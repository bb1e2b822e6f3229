"""Curves of quality over labels, their mean and spread over seeds, and what a strategy saves against random."""

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
        """Over seeds, whose splits differ by more than the strategies do: `gain` compares seed by seed."""
        return self._over_seeds(quality, np.std)

    def scoring_seconds(self) -> float:
        """CPU seconds to rank 10,000 rows."""
        return float(1e4 * self._values("scoring_seconds").sum() / max(self._values("scored_rows").sum(), 1))

    def bought(self, name: str) -> float:
        """What the strategy buys, against the pool's mean; the last step buys nothing."""
        values = self._values(name)[:, :-1]
        return float(values.mean()) if values.size else 1.0

    def gain(self, other: "Curve", quality: str) -> tuple[float, float]:
        """How much lower than `other` it ends, seed by seed: mean and standard error."""
        differences = other._values(quality)[:, -1] - self._values(quality)[:, -1]
        error = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else float("nan")
        return float(differences.mean()), float(error)

    def labels_to_reach(self, quality: str, target: float) -> float:
        """Labels at which the mean curve first comes down to `target`, linear between steps; NaN if it never does."""
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
    """One per strategy, in the order of the runs, of the seeds that are complete."""
    by_label: dict[str, list[tuple[LearningStep, ...]]] = {}
    for run in runs:
        if run.done:
            by_label.setdefault(run.label, []).append(tuple(run.steps()))
    return [Curve(label, tuple(steps)) for label, steps in by_label.items()]


def named(found: Sequence[Curve], label: str) -> Curve | None:
    return next((curve for curve in found if curve.label == label), None)
