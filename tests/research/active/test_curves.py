"""The curves' arithmetic, by hand."""

import math

import numpy as np
import pytest

from research.active.curves import Curve
from research.active.loop import LearningStep


def step(labels: int, nll: float) -> LearningStep:
    return LearningStep(labels, labels / 100, nll, nll / 5, nll + 0.1, nll / 4, 10, 1.0, 0.5, 1000, 2.0, 1.5, 0.8)


def curve(label: str, *nlls: list[float]) -> Curve:
    return Curve(label, tuple(tuple(step(20 + 10 * i, nll) for i, nll in enumerate(seed)) for seed in nlls))


class TestCurve:
    falling = curve("hybrid:0.1", [1.3, 1.1, 0.9], [1.5, 1.3, 1.1])

    def test_mean_deviation_and_cost(self) -> None:
        assert self.falling.mean("nll").tolist() == pytest.approx([1.4, 1.2, 1.0])
        assert self.falling.deviation("nll").tolist() == pytest.approx([0.1, 0.1, 0.1])
        assert self.falling.labels.tolist() == [20, 30, 40]
        assert self.falling.scoring_seconds() == pytest.approx(5.0)
        assert self.falling.bought("chosen_epistemic") == 2.0

    def test_labels_to_reach(self) -> None:
        assert self.falling.labels_to_reach("nll", 1.1) == pytest.approx(35.0)
        assert self.falling.labels_to_reach("nll", 1.4) == 20.0
        assert self.falling.labels_to_reach("nll", 1.0) == 40.0
        assert math.isnan(self.falling.labels_to_reach("nll", 0.9))

    def test_gain_is_paired_by_seed(self) -> None:
        random = curve("random", [1.3, 1.2, 1.0], [1.5, 1.4, 1.3])
        mean, error = self.falling.gain(random, "nll")
        assert mean == pytest.approx(0.15)
        assert error == pytest.approx(np.std([0.1, 0.2], ddof=1) / np.sqrt(2))
