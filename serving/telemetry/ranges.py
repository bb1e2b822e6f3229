"""Counts numbers outside the range of the training data, by feature.

The network's own out-of-distribution signal may not detect a change of unit (seconds instead of milliseconds), because
every value falls into the first or last bucket of its feature, which is common in training. The range does detect it.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ghostless.contract.arrays import Tensors
from serving.engines.interface import ModelVersion
from serving.telemetry.metrics import UncertaintyMetrics, labels_of
from serving.telemetry.record import CallRecord


class RangeObserver:
    """The sink that checks the features of the responses sampled for the uncertainty metrics."""

    needs_metadata = False

    def __init__(self, metrics: UncertaintyMetrics) -> None:
        self._metrics = metrics
        self._versions: WeakKeyDictionary[ModelVersion, _Ranges] = WeakKeyDictionary()

    def needs_inputs(self, stored: bool, sampled: bool) -> bool:
        return sampled

    def needed_outputs(self, stored: bool, sampled: bool) -> frozenset[str]:
        return frozenset()

    def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
        by_model: dict[ModelVersion, list[Tensors]] = {}
        for record in records:
            if record.code == "OK" and record.is_sampled and record.model is not None:
                by_model.setdefault(record.model, []).append(record.inputs)
        for model, inputs in by_model.items():
            if model not in self._versions:
                self._versions[model] = _Ranges(model, self._metrics)
            self._versions[model].observe(inputs)

    def close(self) -> None:
        """Nothing to do: everything is already counted."""


class _Ranges:
    """The ranges of one model version."""

    def __init__(self, model: ModelVersion, metrics: UncertaintyMetrics) -> None:
        labels = labels_of(model)
        self._features = [
            (name, np.float32(low), np.float32(high), metrics.out_of_range_rows.labels(name, *labels))
            for name, (low, high) in model.metadata.ranges.items()
        ]

    def observe(self, inputs: Sequence[Tensors]) -> None:
        for name, low, high, counter in self._features:
            values = np.concatenate([columns[name] for columns in inputs])
            counter.inc(int(np.count_nonzero((values < low) | (values > high))))
