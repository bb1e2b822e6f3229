"""A shuffle buffer: rows are added as they are read, and returned in random order."""

import numpy as np

from learning.data.table import Table, concatenate


class ShuffleBuffer:
    """Holds up to `capacity` rows. When it is full, a random half is returned and the other half stays, so that rows
    from distant parts of the file are mixed."""

    def __init__(self, capacity: int, random: np.random.Generator | None) -> None:
        """random: None keeps the order of the file and returns all rows."""
        self._capacity = capacity
        self._random = random
        self._parts: list[Table] = []
        self.rows = 0

    @property
    def full(self) -> bool:
        return self.rows >= self._capacity

    @property
    def room(self) -> int:
        return self._capacity - self.rows

    def add(self, part: Table) -> None:
        if part.rows > self.room:
            raise ValueError(f"{part.rows} rows do not fit: the buffer holds {self.rows} of {self._capacity}")
        if part.rows:
            self._parts.append(part)
            self.rows += part.rows

    def drain(self, batch_rows: int, last: bool = False) -> list[Table]:
        """Batches of exactly `batch_rows` rows; with `last` all remaining rows, where the last batch may be shorter."""
        if not self.rows:
            return []
        held = concatenate(self._parts)
        if self._random is not None:
            held = held.take(self._random.permutation(held.rows))
        if last:
            leaving = held.rows
        else:
            share = held.rows if self._random is None else max(held.rows // 2, batch_rows)
            leaving = share // batch_rows * batch_rows
        staying = held.take(slice(leaving, None))
        self._parts, self.rows = [staying] if staying.rows else [], staying.rows
        return [held.take(slice(start, min(start + batch_rows, leaving))) for start in range(0, leaving, batch_rows)]
