"""The part of a prediction stored until its outcome arrives, and how its distribution is restored."""

from dataclasses import dataclass

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.scores import Floats
from serving.engines.interface import ModelVersion
from serving.telemetry.metrics import labels_of

# Outputs that the pair test needs, and hashes that identify the candidate and the context of a row.
_SPLIT = (metadata.MEAN, metadata.EPISTEMIC)
ITEM_KEY, CONTEXT_KEY = "item_key", "context_key"
KEYS = frozenset({ITEM_KEY, CONTEXT_KEY})
# Graph outputs needed for every stored request; the CDF comes from the same nodes as the bins.
NEEDED = frozenset({metadata.CDF, metadata.QUANTILES, metadata.EPISTEMIC_CANDIDATE, *_SPLIT})
# Outputs that the distribution can be read from, in order of preference.
_SOURCES = (metadata.CDF, metadata.BINS, metadata.QUANTILES)
_MIRRORED = 1e-6


@dataclass(frozen=True)
class CentralInterval:
    """The central interval between two exported levels; `level` is its nominal coverage."""

    level: float
    lower: int
    upper: int


@dataclass(frozen=True, eq=False)
class StoredDistribution:
    """The stored form of the predictions of one model version."""

    labels: tuple[str, str, str]
    # Graph outputs that are stored, and keys, with their number of columns.
    outputs: dict[str, int]
    # The output that the distribution is read from.
    source: str
    low: float
    high: float
    # Knots of the CDF, or edges of the bins; unused if only quantiles are stored.
    knots: Floats
    # Levels of the quantiles; empty if the model returns none.
    levels: tuple[float, ...]
    intervals: tuple[CentralInterval, ...]
    # Whether the source is calibrated at every level, so that coverage can be read from the PIT.
    is_calibrated: bool = False
    # The output with the candidates' own epistemic variance; empty if the pair test is not possible.
    candidate_variance: str = ""
    # Columns that identify the candidate, and the context, of a row.
    item_columns: tuple[str, ...] = ()
    context_columns: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> int:
        return 4 * sum(self.outputs.values())

    def is_in(self, outputs: Tensors) -> bool:
        return outputs.keys() >= self.outputs.keys() - KEYS

    def distribution(self, stored: Tensors) -> tuple[Floats, Floats]:
        """The CDF of stored rows: heights [n, k] and knots [k] or [n, k]."""
        values = stored[self.source].astype(np.float64)
        zeros, ones = np.zeros((len(values), 1)), np.ones((len(values), 1))
        if self.source == metadata.CDF:
            return np.clip(np.maximum.accumulate(values, axis=1), 0.0, 1.0), self.knots
        if self.source == metadata.BINS:
            inner = np.cumsum(values[:, :-1], axis=1)
            return np.concatenate([zeros, np.minimum(inner, 1.0), ones], axis=1), self.knots
        inside = np.clip(np.maximum.accumulate(values, axis=1), self.low, self.high)
        points = np.concatenate([zeros + self.low, inside, zeros + self.high], axis=1)
        return np.broadcast_to([0.0, *self.levels, 1.0], points.shape), points

    def quantiles(self, stored: Tensors) -> Array:
        """Quantiles [n, levels] as they were served."""
        return stored[metadata.QUANTILES] if self.levels else np.empty((len(stored[self.source]), 0), np.float32)


def distribution_to_store(model: ModelVersion) -> StoredDistribution | None:
    """How to store predictions of this model; None if its graph returns no distribution."""
    described = model.metadata
    source = next((name for name in _SOURCES if name in model.outputs), None)
    if source is None:
        return None
    widths = described.widths()
    levels = described.levels if metadata.QUANTILES in model.outputs else ()
    outputs = {name: widths[name] for name in (source, metadata.QUANTILES) if name in model.outputs}
    candidate = ""
    if not set(_SPLIT).difference(model.outputs):
        candidate = metadata.candidate_variance(model.outputs)
        outputs |= dict.fromkeys((*_SPLIT, candidate, *sorted(KEYS)), 1)
    return StoredDistribution(
        labels=labels_of(model),
        outputs=outputs,
        source=source,
        low=described.target.low,
        high=described.target.high,
        knots=np.asarray(described.edges if source == metadata.BINS else described.knots, dtype=np.float64),
        levels=levels,
        intervals=central_intervals(levels),
        is_calibrated=source == metadata.CDF and described.format >= metadata.CALIBRATED_CDF,
        candidate_variance=candidate,
        item_columns=described.id_columns("candidate"),
        context_columns=described.id_columns("context"),
    )


def central_intervals(levels: tuple[float, ...]) -> tuple[CentralInterval, ...]:
    """All pairs of levels with equal probability below and above the interval."""
    return tuple(
        CentralInterval(round(upper - lower, 6), i, j)
        for i, lower in enumerate(levels)
        for j, upper in enumerate(levels)
        if i < j and abs(lower + upper - 1.0) < _MIRRORED
    )


def level_name(level: float) -> str:
    """The value of the metric's label."""
    return f"{level:g}"
