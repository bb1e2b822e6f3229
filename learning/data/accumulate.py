"""Statistics of one column gathered batch by batch, in bounded memory."""

import numpy as np

from learning.data.table import Array


class Frequencies:
    """Distinct values and their counts."""

    # Merging sorts all distinct values, so it waits for this many new values.
    _WAIT = 1_000_000

    def __init__(self) -> None:
        self._values: list[Array] = []
        self._counts: list[Array] = []
        self._waiting = 0

    def add(self, column: Array) -> None:
        values, counts = np.unique(column, return_counts=True)
        self._values.append(values)
        self._counts.append(counts)
        self._waiting += len(values)
        if self._waiting > max(self._WAIT, len(self._values[0])):
            self._merge()

    def result(self) -> tuple[Array, Array]:
        """Sorted distinct values [V] and their counts int64 [V]."""
        self._merge()
        return self._values[0], self._counts[0]

    def _merge(self) -> None:
        values, place = np.unique(np.concatenate(self._values), return_inverse=True)
        counts = np.zeros(len(values), np.int64)
        np.add.at(counts, place, np.concatenate(self._counts))
        self._values, self._counts, self._waiting = [values], [counts], 0


class UniformSample:
    """A uniform random sample of up to `size` values: every row gets a random key, and the smallest keys are kept.

    Keys are drawn in row order, so the sample does not depend on how the rows were divided into batches.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self._size = size
        self._random = np.random.default_rng(seed)
        self._keys: list[Array] = []
        self._values: list[Array] = []
        self._held = 0
        self._bound = np.inf

    def add(self, column: Array) -> None:
        keys = self._random.random(len(column))
        kept = keys < self._bound
        self._keys.append(keys[kept])
        self._values.append(column[kept])
        self._held += int(kept.sum())
        if self._held > 2 * self._size:
            self._shrink()

    def sorted(self) -> Array:
        if self._held > self._size:
            self._shrink()
        return np.sort(np.concatenate(self._values))

    def _shrink(self) -> None:
        keys, values = np.concatenate(self._keys), np.concatenate(self._values)
        smallest = np.argpartition(keys, self._size - 1)[: self._size]
        self._keys, self._values, self._held = [keys[smallest]], [values[smallest]], self._size
        self._bound = float(self._keys[0].max())
