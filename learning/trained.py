"""What `ghostless train` leaves behind, to be judged and exported: one network, or a linear pool of two heads."""

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
# The format that is written, and those that are read: it and the one before.
FORMAT = 2
READABLE = (1, 2)


@dataclass(frozen=True)
class TrainedModel:
    """Networks of one training part and their weights, which sum to 1; a single network has weight 1.

    Both heads have the same encoding and the same held-out rows. The heads' disagreement is the model's ignorance of
    which of them is right, and counts as epistemic.
    """

    checkpoints: tuple[Checkpoint, ...]
    weights: tuple[float, ...] = (1.0,)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    # Of a pool's own distribution; a single network has its own.
    calibration: Calibration = field(default_factory=Calibration)
    # The pair test of held-out rows, once they were judged.
    pairs: PairTest | None = None

    @property
    def first(self) -> Checkpoint:
        """Whose encoding, schema and held-out rows are the model's."""
        return self.checkpoints[0]

    @property
    def head(self) -> Literal["qr", "cr", "pool"]:
        return "pool" if len(self.checkpoints) > 1 else self.first.model_config.head

    @property
    def predict(self) -> Predict:
        """From encoded rows to their distributions."""
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
        """[k]: where the pool's CDF is read, those of its first network."""
        return self.first.model.head.knots

    @property
    def uncalibrated(self) -> Predict:
        """The weighted mean of the networks' CDFs, none of them mapped."""
        networks = [checkpoint.network.eval() for checkpoint in self.checkpoints]
        weights = torch.tensor(self.weights)

        def predict(batch: Mapping[str, Tensor]) -> Predictive:
            return LinearPool(tuple(network.uncalibrated(batch) for network in networks), weights)

        return predict

    def calibrated(self) -> "TrainedModel":
        """With the map that the calibration rows give; they are the same for all its networks."""
        if len(self.checkpoints) == 1:
            return self
        first = self.first
        fitted = calibration.calibrate_pool(self.uncalibrated, self.knots, first.encoding, first.calibration)
        return replace(self, calibration=fitted)

    def judge_pairs(self, held_out: Dataset) -> PairTest | None:
        """The pair test of rows that fitted nothing; None for a model that has no effects."""
        effects = self.first.model.effects
        if effects is None:
            return None
        return id_effects.judge_pairs(effects, self.predict, self.first.encoding, held_out)

    def save(self, directory: Path) -> None:
        """One network: its checkpoint. Two: `pool.json`, beside the folders in which their own runs lie."""
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
        """From a run's directory, or from a checkpoint file."""
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
            # Format 1 has no map; it is fitted to the rows that its networks were calibrated with.
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
    """Whether `directory` holds a finished run, of one network or of a pool."""
    return finished(directory) or (directory / FILE).exists()
