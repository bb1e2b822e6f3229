"""Uncertainty metrics of the sampled responses, computed for many requests at once."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Array, Tensors
from serving.engines.interface import ModelVersion
from serving.outcomes.stored_distribution import central_intervals, level_name
from serving.telemetry.buckets import LogBuckets
from serving.telemetry.instruments import Histogram
from serving.telemetry.metrics import DEVIATION, SHARE, VARIANCE, UncertaintyMetrics, labels_of

# Graph outputs needed for sampled responses.
NEEDED = frozenset({metadata.ALEATORIC, metadata.EPISTEMIC, metadata.LOGIT_VARIANCE, metadata.UNKNOWN_IDS})
# Quantiles and bins are ten times as wide as all of these together, so they are sampled only for requests that asked
# for them, and only every 16th row (recorder.py). Keeping all of them would make the server write each response to
# uncached memory.
WIDE_OUTPUTS = frozenset({metadata.QUANTILES, metadata.BINS})
STRIDE = 16
# The smallest normal float32, used instead of 0 as a divisor.
_TINY = np.finfo(np.float32).tiny


class UncertaintyObserver:
    def __init__(self, metrics: UncertaintyMetrics) -> None:
        self._metrics = metrics
        self._versions: WeakKeyDictionary[ModelVersion, _Version] = WeakKeyDictionary()

    def observe(self, model: ModelVersion, answers: Sequence[Tensors], wide_rows: Sequence[Tensors]) -> None:
        """Add the outputs of answered requests to one model version, and some rows of their wide outputs."""
        version = self._versions.get(model)
        if version is None:
            version = self._versions[model] = _Version(model, self._metrics)
        version.observe(answers, wide_rows)


class _Version:
    """The metrics of one model version."""

    def __init__(self, model: ModelVersion, metrics: UncertaintyMetrics) -> None:
        labels = labels_of(model)
        described = model.metadata
        self._share = metrics.epistemic_share.labels(*labels)
        self._epistemic = metrics.epistemic_std.labels(*labels)
        self._aleatoric = metrics.aleatoric_std.labels(*labels)
        self._logit_variance = metrics.logit_variance.labels(*labels)
        self._entropy = metrics.bin_entropy_nats.labels(*labels)
        self._out_of_distribution = metrics.out_of_distribution_rows.labels(*labels)
        self._threshold = described.out_of_distribution_over
        self._unknown = [metrics.unknown_ids.labels(name, *labels) for name in described.unknown_ids]
        self._crossings = metrics.quantile_crossings.labels(*labels)
        # Create the series at 0, so that a rate includes the first increment.
        metrics.non_finite_outputs.labels(*labels)
        intervals = central_intervals(described.levels)
        self._lower = [interval.lower for interval in intervals]
        self._upper = [interval.upper for interval in intervals]
        widths = metrics.interval_width
        self._widths = [widths.labels(level_name(interval.level), *labels) for interval in intervals]

    def observe(self, answers: Sequence[Tensors], wide_rows: Sequence[Tensors]) -> None:
        if len(epistemic := _rows(answers, metadata.EPISTEMIC)) == len(aleatoric := _rows(answers, metadata.ALEATORIC)):
            self._observe_split(epistemic, aleatoric)
        if len(variance := _rows(answers, metadata.LOGIT_VARIANCE)):
            _count(self._logit_variance, VARIANCE, variance)
            if self._threshold is not None:
                self._out_of_distribution.inc(int(np.count_nonzero(variance > self._threshold)))
        if len(unknown := _rows(answers, metadata.UNKNOWN_IDS)):
            for column, counter in enumerate(self._unknown):
                counter.inc(int(np.count_nonzero(unknown[:, column])))
        if len(bins := _rows(wide_rows, metadata.BINS)):
            self._entropy.observe(entropy(bins))
        if len(quantiles := _rows(wide_rows, metadata.QUANTILES)):
            self._crossings.inc(crossings(quantiles))
            self._observe_widths(quantiles)

    def _observe_split(self, epistemic: Array, aleatoric: Array) -> None:
        """Add epistemic and aleatoric variances [n]."""
        if not len(epistemic):
            return
        # A row without any variance is certain, not undefined.
        share = epistemic / np.maximum(epistemic + aleatoric, _TINY)
        _count(self._share, SHARE, share)
        _count(self._epistemic, DEVIATION, np.sqrt(np.abs(epistemic)))
        _count(self._aleatoric, DEVIATION, np.sqrt(np.abs(aleatoric)))

    def _observe_widths(self, quantiles: Array) -> None:
        """Add the interval widths and crossings of quantiles [n, levels]."""
        for histogram, lower, upper in zip(self._widths, self._lower, self._upper, strict=True):
            _count(histogram, DEVIATION, quantiles[:, upper] - quantiles[:, lower])


def entropy(bins: Array) -> Array:
    """Entropy in nats of probabilities [n, bins]; an empty bin contributes 0."""
    # For an empty bin, the logarithm is finite and multiplied by 0.
    logarithms = np.log(np.maximum(bins, _TINY))
    total: Array = -np.einsum("ij,ij->i", bins, logarithms)
    return total


def crossings(quantiles: Array) -> int:
    """Number of rows of quantiles [n, levels] that decrease somewhere."""
    flat = np.ascontiguousarray(quantiles).reshape(-1)
    falls = np.count_nonzero(flat[1:] < flat[:-1])
    # A decrease from the end of one row to the start of the next is normal; check the rows only if there are more.
    if falls == np.count_nonzero(quantiles[1:, 0] < quantiles[:-1, -1]):
        return 0
    return int((quantiles[:, 1:] < quantiles[:, :-1]).any(axis=1).sum())


def _rows(answers: Sequence[Tensors], name: str) -> Array:
    """The rows of one output, concatenated over the responses that have it."""
    parts = [answer[name] for answer in answers if name in answer]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else _NONE


_NONE: Array = np.empty(0, dtype=np.float32)


def _count(histogram: Histogram, buckets: LogBuckets, values: Array) -> None:
    histogram.add(buckets.count(values), float(values.sum(dtype=np.float64)))
