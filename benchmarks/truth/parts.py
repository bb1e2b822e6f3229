"""Rows that fit and rows that judge. The judged rows are split off here: neither product nor rival receives them."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learning.data.table import Table

# The same share and seed as the first step of `learning.training.split` with default options.
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Parts:
    """`fitting` goes to the product, which takes its own calibration rows from it; `judged` fits nothing."""

    name: str
    fitting: Table
    judged: Table

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256((self.fitting.fingerprint() + self.judged.fingerprint()).encode()).hexdigest()

    def history(self, feature: str) -> NDArray[np.int64]:
        """How many fitting rows have each judged row's value of an id feature, [n]."""
        known, counts = np.unique(self.fitting.columns[feature], return_counts=True)
        values = self.judged.columns[feature]
        place = np.minimum(np.searchsorted(known, values), len(known) - 1)
        return np.where(known[place] == values, counts[place], 0).astype(np.int64)


def split_off(name: str, table: Table, seed: int) -> Parts:
    """A random fifth of the rows to judge on."""
    fitting, judged = table.split(1.0 - TEST_SHARE, seed)
    return Parts(name, fitting, judged)
