"""Fits head, calibration and effects to the features of a frozen ranker."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from learning.checkpoint import Checkpoint
from learning.config import ModelConfig, TrainConfig
from learning.data.table import Array, Dataset, Table, sample
from learning.errors import RankerError
from learning.evaluation import evaluate
from learning.metrics import bucket_index
from learning.own import graph_trial, onnx_ranker
from learning.own.frozen import FrozenEncoding
from learning.own.onnx_ranker import OnnxRanker
from learning.schema import Schema
from learning.training import Trainer

# Number of rows on which the ranker is tried before anything is fitted.
TRIED_ROWS = 64
_EXTREME_IDS = np.array([0, -1, 1, 2**31, -(2**31), 2**63 - 1, -(2**63)], np.int64)
_EXTREME_STRINGS = np.array(["", "\u00e9\u4e2d", "x" * 300, "0"])
_LEAST_PROBABILITY = 1e-12
# Standard errors by which NLL must differ for a warning.
_ERRORS = 2.0


def load_ranker(path: Path, output: str, schema: Schema, unknown: Mapping[str, int | str]) -> OnnxRanker:
    """The part of a ranker's file that `output` needs, matched with the schema."""
    return OnnxRanker.of(onnx_ranker.read(path, output), path.name, schema, unknown)


def fit_encoding(ranker: OnnxRanker, train: Dataset) -> FrozenEncoding:
    """Encoding of a run with this ranker; raises an error if the ranker can't answer rows one by one."""
    encoding = FrozenEncoding.fit_with(ranker, train)
    try_ranker(encoding, sample(train, TRIED_ROWS, 1))
    return encoding


def try_ranker(encoding: FrozenEncoding, some: Table) -> None:
    """Run the ranker on usual rows, on extreme numbers and on unknown ids."""
    ranker = encoding.ranker
    usual = _repeated(some.columns)
    corners = {
        name: np.resize(np.array([*encoding.limits(name), np.float32(0.0), np.float32(-1.0)]), len(values))
        for name, values in usual.items()
        if name not in encoding.vocabularies
    }
    graph_trial.check(ranker.proto, ranker.source, _fed(encoding, usual), _fed(encoding, {**usual, **corners}))
    for name in encoding.vocabularies:
        values = usual[name]
        strange = np.resize(_EXTREME_STRINGS if values.dtype.kind == "U" else _EXTREME_IDS, len(values))
        try:
            ranker(_columns(encoding, {**usual, name: strange}))
        except RankerError as error:
            raise RankerError(
                f"{error}. It fails on ids of '{name}' that it does not know; say what it should get instead: "
                f"--unknown-id {name}=ID, for example the row that its table has for unknown ids"
            ) from error


def _columns(encoding: FrozenEncoding, columns: Mapping[str, Array]) -> dict[str, Array]:
    rows = len(next(iter(columns.values())))
    table = Table(encoding.schema, columns, np.zeros(rows, np.float32))
    return encoding.ranker_columns(table.columns, encoding.codes(table))


def _fed(encoding: FrozenEncoding, columns: Mapping[str, Array]) -> dict[str, Array]:
    return encoding.ranker.feed(_columns(encoding, columns))


def _repeated(columns: Mapping[str, Array]) -> dict[str, Array]:
    """The rows, repeated until there are at least the eight that the trial needs."""
    return {name: np.resize(values, max(8, len(values))) for name, values in columns.items()}


def trainer(
    ranker: OnnxRanker, dataset: Dataset, data: str, model: ModelConfig, config: TrainConfig, out: Path | None = None
) -> Trainer:
    """A run that fits a head to the ranker; `model` has the options of the head."""
    return Trainer(dataset, data, model, config, out, fit_encoding=partial(fit_encoding, ranker))


def identity(ranker: OnnxRanker) -> str:
    """`ModelConfig.own_options` of a run with this ranker, so that it is resumed only with the same one."""
    digest = hashlib.sha256(ranker.model).hexdigest()
    return json.dumps({"file": ranker.source, "sha256": digest, "unknown": dict(ranker.unknown)}, sort_keys=True)


@dataclass(frozen=True)
class Memorised:
    """NLL of fresh rows and of rows that the ranker was trained on; error: the standard error of their difference."""

    fresh_nll: float
    used_nll: float
    error: float

    @property
    def note(self) -> str:
        """A warning if the difference is larger than chance explains, else empty."""
        if self.fresh_nll - self.used_nll <= _ERRORS * self.error:
            return ""
        return (
            f"warning: the ranker has memorised its training rows: NLL {self.used_nll:.4f} on them, "
            f"{self.fresh_nll:.4f} on fresh rows, difference {self.fresh_nll - self.used_nll:.4f} +- {self.error:.4f}. "
            "A head that is fitted to those rows is too confident; keep them out of --data"
        )


def memorised(checkpoint: Checkpoint, fresh: Dataset, used: Dataset) -> Memorised:
    """Compare rows that the ranker was trained on with rows that nothing was fitted to."""
    losses = [_losses(checkpoint, part) for part in (fresh, used)]
    means, errors = zip(*((float(loss.mean()), float(loss.var() / len(loss))) for loss in losses), strict=True)
    return Memorised(means[0], means[1], float(np.sqrt(sum(errors))))


def _losses(checkpoint: Checkpoint, dataset: Dataset) -> Array:
    """Negative log probability [n] of the outcomes' buckets."""
    judged = evaluate(checkpoint, dataset)
    truth = bucket_index(judged.y, judged.edges)
    losses: Array = -np.log(np.maximum(judged.masses[np.arange(len(truth)), truth], _LEAST_PROBABILITY))
    return losses
