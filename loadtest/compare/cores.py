"""Cores for the server and cores for the generator, so that neither slows the other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loadtest.errors import PlanError


@dataclass(frozen=True)
class CoreSplit:
    """`shared`: both use the same cores, because there is only one or because it was asked for."""

    server: frozenset[int]
    generator: frozenset[int]

    @property
    def shared(self) -> bool:
        return bool(self.server & self.generator)


def split_cores(server_cores: int = 0) -> CoreSplit:
    """The first `server_cores` of this process for the server, the rest for the generator; 0: half of them."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) == 1:
        return CoreSplit(frozenset(available), frozenset(available))
    count = server_cores or len(available) // 2
    if not 0 < count < len(available):
        raise PlanError(
            f"{count} cores for the server of {len(available)}; the generator needs at least one of its own"
        )
    return CoreSplit(frozenset(available[:count]), frozenset(available[count:]))


@contextmanager
def on_cores(cores: frozenset[int]) -> Iterator[None]:
    """This thread, and the processes that it starts meanwhile, run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
