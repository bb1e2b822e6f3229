"""The result of `ghostless train`, for evaluation and export: one network, or a linear pool of two heads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ghostless.contract.pair_test import PairTest
from ghostless.heads.calibration import Calibration
from ghostless.heads.predictive import CalibratedReading, Predictive
from learning import calibration, id_effects
from learning.checkpoint import Checkpoint
from learning.data.table import Dataset
from learning.errors import CheckpointError
from learning.json_files import write_atomically
from learning.linear_pool import LinearPool
from learning.model import Predict
from learning.training import finished

FILE = "pool.json"
# The format that is written, and those that are read: this one and the previous one.
FORMAT = 2
READABLE = (1, 2)


@dataclass(frozen=True)
class TrainedModel:
    """Networks of one training part and their weights, which sum to 1; a single network has weight 1.

    Both heads have the same encoding and the same held-out rows. Their disagreement counts as epistemic variance,
    because the model does not know which of them is right.
    """

    checkpoints: tuple[Checkpoint, ...]
    weights: tuple[float, ...] = (1.0,)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    # Calibration of a pool; a single network has its own.
    calibration: Calibration = field(default_factory=Calibration)
    # The pair test on held-out rows, once it has been run.
    pairs: PairTest | None = None

    @property
    def first(self) -> Checkpoint:
        """The first network, whose encoding, schema and held-out rows are those of the model."""
        return self.checkpoints[0]

    @property
    def head(self) -> Literal["qr", "cr", "pool"]:
        return "pool" if len(self.checkpoints) > 1 else self.first.model_config.head

    @property
    def predict(self) -> Predict:
        """A function from encoded rows to their distributions."""
        if len(self.checkpoints) == 1:
            return self.first.network.eval().predict
        uncalibrated, knots, effects = self.uncalibrated, self.knots, self.first.model.effects
        heights = torch.tensor(self.calibration.heights)

        def predict(batch: Mapping[str, Tensor]) -> Predictive:
            own = None if effects is None else effects(batch)
            return CalibratedReading(uncalibrated(batch), knots, heights, own)

        return predict

    @property
    def knots(self) -> Tensor:
        """Knots [k] at which the pool's CDF is read: those of its first network."""
        return self.first.model.head.knots

    @property
    def uncalibrated(self) -> Predict:
        """The weighted mean of the networks' uncalibrated CDFs."""
        networks = [checkpoint.network.eval() for checkpoint in self.checkpoints]
        weights = torch.tensor(self.weights)

        def predict(batch: Mapping[str, Tensor]) -> Predictive:
            return LinearPool(tuple(network.uncalibrated(batch) for network in networks), weights)

        return predict

    def calibrated(self) -> "TrainedModel":
        """The model with the map fitted to the calibration rows, which are the same for all its networks."""
        if len(self.checkpoints) == 1:
            return self
        first = self.first
        fitted = calibration.calibrate_pool(self.uncalibrated, self.knots, first.encoding, first.calibration)
        return replace(self, calibration=fitted)

    def judge_pairs(self, held_out: Dataset) -> PairTest | None:
        """The pair test on rows that were not used for fitting; None for a model without effects."""
        effects = self.first.model.effects
        if effects is None:
            return None
        return id_effects.judge_pairs(effects, self.predict, self.first.encoding, held_out)

    def save(self, directory: Path) -> None:
        """Write a single network as its checkpoint, or a pool as `pool.json` and one folder per network."""
        if len(self.checkpoints) == 1:
            (directory / FILE).unlink(missing_ok=True)
            replace(self.first, metrics=dict(self.metrics), pairs=self.pairs).save(directory)
            return
        for stale in ("checkpoint.pt", "run.json"):
            (directory / stale).unlink(missing_ok=True)
        members = {
            checkpoint.model_config.head: weight
            for checkpoint, weight in zip(self.checkpoints, self.weights, strict=True)
        }
        write_atomically(
            directory / FILE,
            {
                "format": FORMAT,
                "data": self.first.data,
                "fingerprint": self.first.fingerprint,
                "members": members,
                "metrics": dict(self.metrics),
                "map": list(self.calibration.heights),
                "pairs": None if self.pairs is None else self.pairs.to_dict(),
            },
        )

    @classmethod
    def load(cls, path: Path) -> "TrainedModel":
        """Load from a run's directory or a checkpoint file."""
        file = path / FILE
        if not file.exists():
            checkpoint = Checkpoint.load(path)
            return cls((checkpoint,), (1.0,), checkpoint.metrics, pairs=checkpoint.pairs)
        try:
            content = json.loads(file.read_text())
            if content["format"] not in READABLE:
                readable = " and ".join(map(str, READABLE))
                raise CheckpointError(
                    f"{file}: format {content['format']!r}, this version reads {readable}; train again"
                )
            weights = {head: float(weight) for head, weight in content["members"].items()}
            metrics = dict(content["metrics"])
            # Format 1 has no map; it is fitted to the calibration rows of its networks.
            fitted = Calibration(1.0, tuple(map(float, content["map"]))) if content["format"] > 1 else None
            pairs = None if content.get("pairs") is None else PairTest.from_dict(content["pairs"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{file}: damaged or not a pool: {error}") from error
        checkpoints = tuple(Checkpoint.load(path / head) for head in weights)
        if len({checkpoint.fingerprint for checkpoint in checkpoints}) != 1:
            raise CheckpointError(f"{path}: its networks were trained on different data; train again")
        if fitted is None:
            return cls(checkpoints, tuple(weights.values()), metrics).calibrated()
        return cls(checkpoints, tuple(weights.values()), metrics, fitted, pairs)


def is_complete(directory: Path) -> bool:
    """Whether `directory` contains a finished run of one network or a pool."""
    return finished(directory) or (directory / FILE).exists()
