"""The pair test in production: do errors correlate as much as the served epistemic variance predicts?

Two rows that share an id share the error that the model makes about this id, so the mean of r_i r_j with
r = outcome - mean is the variance of that error, whatever the noise. It is compared with the served covariance, where e
is the epistemic variance and c the candidate's part of it:

    rows of one request share the context:    sqrt((e_i - c_i) (e_j - c_j)), at most that where ids have factors
    rows of one candidate, other contexts:    at most sqrt(c_i c_j), which also includes what no two rows share

Each outcome is paired with the previous one of the same request and with the previous one of the same candidate. So
every outcome has the same weight, instead of weighting candidates by the square of their views, and a table of last
outcomes of fixed size is enough.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ghostless.contract import metadata
from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.item_draws import hash_rows
from serving.outcomes.stored_distribution import CONTEXT_KEY, ITEM_KEY, StoredDistribution
from serving.telemetry.metrics import PairMetrics

Shared = Literal["context", "candidate"]
Keys = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]

# Number of last outcomes stored for requests and for candidates; with more ids, some are overwritten before they are
# paired.
_SLOTS = 65_536


def row_keys(stored: StoredDistribution, inputs: Sequence[Tensors]) -> dict[str, Keys]:
    """Hashes of the candidate and of the context of each row of these requests, [all rows] each."""
    rows = sum(len(next(iter(columns.values()))) for columns in inputs)
    return {
        key: _short([np.concatenate([columns[name] for columns in inputs]) for name in names], rows)
        for key, names in ((ITEM_KEY, stored.item_columns), (CONTEXT_KEY, stored.context_columns))
    }


def _short(columns: Sequence[Array], rows: int) -> Keys:
    return np.broadcast_to((hash_rows(0, columns) >> np.uint64(32)).astype(np.uint32), rows)


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """Joined outcomes of one model version in the order of their arrival, [n] each: the requests, the stored outputs,
    and outcome - mean."""

    requests: npt.NDArray[np.int64]
    outputs: Tensors
    residuals: Floats


class PairTest:
    """The pair test of one model version. Safe to use from several threads."""

    def __init__(self, stored: StoredDistribution, metrics: PairMetrics) -> None:
        self._stored = stored
        self._by_request, self._by_item = _LastOutcomes(), _LastOutcomes()
        self._context = _PairCounters(metrics, "context", stored)
        self._candidate = _PairCounters(metrics, "candidate", stored)
        self._lock = threading.Lock()

    def add(self, rows: JoinedRows) -> None:
        whole = _column(rows.outputs, metadata.EPISTEMIC)
        own = _column(rows.outputs, self._stored.candidate_variance)
        items, contexts = (rows.outputs[key][:, 0] for key in (ITEM_KEY, CONTEXT_KEY))
        if not self._stored.context_columns:
            contexts = rows.requests.astype(np.uint32)
        with self._lock:
            # Pairs that share both candidate and context are excluded from both.
            self._context.add(self._by_request.pair(rows.requests, items, rows.residuals, np.sqrt(_over(whole, own))))
            if self._stored.item_columns:
                self._candidate.add(self._by_item.pair(items, contexts, rows.residuals, np.sqrt(_over(own, 0.0))))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """r_i r_j and the served covariance of p pairs, [p] each."""

    products: Floats
    served: Floats


class _LastOutcomes:
    """The last outcome of each key, in a table of fixed size: the slot is the key modulo the size, and a newer key
    overwrites it."""

    def __init__(self) -> None:
        self._keys = np.zeros(_SLOTS, np.int64)
        self._others = np.zeros(_SLOTS, np.uint32)
        self._residuals = np.zeros(_SLOTS, np.float64)
        self._deviations = np.zeros(_SLOTS, np.float64)
        self._taken = np.zeros(_SLOTS, np.bool_)

    def pair(self, keys: Array, others: Keys, residuals: Floats, deviations: Floats) -> _Pairs:
        """Pair each outcome with the previous one of the same key, unless they have the same `others`; [n] each."""
        order = np.argsort(keys, kind="stable")
        keys, others = keys[order].astype(np.int64), others[order]
        residuals, deviations = residuals[order], deviations[order]
        slots = keys % _SLOTS
        first = np.ones(len(keys), np.bool_)
        first[1:] = keys[1:] != keys[:-1]
        before = np.arange(len(keys)) - 1
        known = ~first | (self._taken[slots] & (self._keys[slots] == keys))
        paired = known & (np.where(first, self._others[slots], others[before]) != others)
        products = residuals * np.where(first, self._residuals[slots], residuals[before])
        served = deviations * np.where(first, self._deviations[slots], deviations[before])
        last = np.append(first[1:], True)
        kept = slots[last]
        self._keys[kept], self._others[kept], self._taken[kept] = keys[last], others[last], True
        self._residuals[kept], self._deviations[kept] = residuals[last], deviations[last]
        return _Pairs(products[paired], served[paired])


class _PairCounters:
    def __init__(self, metrics: PairMetrics, shared: Shared, stored: StoredDistribution) -> None:
        self._pairs = metrics.count.labels(shared, *stored.labels)
        self._positive = metrics.products.labels(shared, "positive", *stored.labels)
        self._negative = metrics.products.labels(shared, "negative", *stored.labels)
        self._squares = metrics.squares.labels(shared, *stored.labels)
        self._served = metrics.served.labels(shared, *stored.labels)

    def add(self, pairs: _Pairs) -> None:
        self._pairs.inc(len(pairs.products))
        self._positive.inc(float(np.maximum(pairs.products, 0.0).sum()))
        self._negative.inc(float(np.maximum(-pairs.products, 0.0).sum()))
        self._squares.inc(float(np.square(pairs.products).sum()))
        self._served.inc(float(pairs.served.sum()))


def _column(outputs: Tensors, name: str) -> Floats:
    return outputs[name][:, 0].astype(np.float64)


def _over(values: Floats, floor: Floats | float) -> Floats:
    """max(values - floor, 0): rounding may leave the difference slightly negative."""
    return np.maximum(values - floor, 0.0)
