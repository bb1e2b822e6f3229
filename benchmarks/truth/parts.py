"""Rows for fitting and rows for evaluation. They are split here, so neither the product nor LightGBM receives the
latter."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learning.data.table import Table

# The same fraction and seed as the first step of `learning.training.split` with default options.
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Parts:
    """`fitting` is given to the product, which takes its calibration rows from it; `judged` is only evaluated on."""

    name: str
    fitting: Table
    judged: Table

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256((self.fitting.fingerprint() + self.judged.fingerprint()).encode()).hexdigest()

    def history(self, feature: str) -> NDArray[np.int64]:
        """Number of fitting rows that have the same value of an id feature as each judged row, [n]."""
        known, counts = np.unique(self.fitting.columns[feature], return_counts=True)
        values = self.judged.columns[feature]
        place = np.minimum(np.searchsorted(known, values), len(known) - 1)
        return np.where(known[place] == values, counts[place], 0).astype(np.int64)


def split_off(name: str, table: Table, seed: int) -> Parts:
    """Split off a random fifth of the rows for evaluation."""
    fitting, judged = table.split(1.0 - TEST_SHARE, seed)
    return Parts(name, fitting, judged)
