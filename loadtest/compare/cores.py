"""Separate cores for the server and the load generator, so that neither slows the other down."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loadtest.errors import PlanError


@dataclass(frozen=True)
class CoreSplit:
    """Cores of the server and of the load generator. They are `shared` if the machine has only one core."""

    server: frozenset[int]
    generator: frozenset[int]

    @property
    def shared(self) -> bool:
        return bool(self.server & self.generator)


def split_cores(server_cores: int = 0) -> CoreSplit:
    """The first `server_cores` cores of this process for the server, the rest for the generator; 0 means half."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) == 1:
        return CoreSplit(frozenset(available), frozenset(available))
    count = server_cores or len(available) // 2
    if not 0 < count < len(available):
        raise PlanError(f"{count} of {len(available)} cores for the server; the load generator needs at least one core")
    return CoreSplit(frozenset(available[:count]), frozenset(available[count:]))


@contextmanager
def on_cores(cores: frozenset[int]) -> Iterator[None]:
    """Restrict this thread, and the processes that it starts meanwhile, to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
