"""Throughput of the engine alone: the embedded engine in this process, with one slot and no network."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from ghostless.contract.arrays import Tensors
from ghostless.contract.errors import RequestError
from loadtest.compare.fan_out import FanOutEngine
from loadtest.compare.variants import Variant
from serving.dataplane.model_plan import plan_of
from serving.engines.batcher import BatchLimits
from serving.engines.embedded import EmbeddedEngine
from serving.engines.interface import Engine, Job, run_until_idle

_WARM_UP = 3
# The queue has room for the jobs of an ensemble with up to this number of members.
_MEMBERS = 100


def measure_engine(
    variants: Sequence[Variant], feeds: Tensors, rounds: int, round_s: float
) -> Mapping[str, list[float]]:
    """Milliseconds of one call with these rows and all outputs, one value per round, by variant. In each round every
    variant runs for `round_s` seconds, and its fastest call counts, because no other process interrupted it."""
    rows = len(next(iter(feeds.values())))
    limits = BatchLimits(slots=1, max_batch_rows=rows, queue_rows=_MEMBERS * rows)
    times: dict[str, list[float]] = {variant.name: [] for variant in variants}
    with ExitStack() as stack:
        engines: dict[str, Engine] = {}
        for variant in variants:
            embedded = EmbeddedEngine(variant.repository, limits)
            embedded.start()
            stack.callback(embedded.stop)
            groups = {variant.model: variant.members}
            engines[variant.name] = FanOutEngine(embedded, groups) if variant.members else embedded
            for _ in range(_WARM_UP):
                _run(engines[variant.name], variant.model, feeds)
        for _ in range(rounds):
            for variant in variants:
                times[variant.name].append(_best_ms(engines[variant.name], variant.model, feeds, round_s))
    return times


def _best_ms(engine: Engine, model: str, feeds: Tensors, seconds: float) -> float:
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while not taken or time.perf_counter() < ends:
        began = time.perf_counter()
        _run(engine, model, feeds)
        taken.append(time.perf_counter() - began)
    return 1000 * float(np.min(taken))


def _run(engine: Engine, model: str, feeds: Tensors) -> None:
    """Run the model as the facade does for a request with all outputs."""
    served = engine.resolve(model, 0)
    engine.submit(_Asked(served, feeds, len(next(iter(feeds.values()))), plan_of(served).wanted))
    run_until_idle(engine)


class _Asked(Job):
    __slots__ = ()

    def succeed(self, outputs: Tensors) -> None:
        """Nothing to do: only the time is measured."""

    def fail(self, error: RequestError) -> None:
        raise error

    def on_queued(self) -> None:
        """Nothing to do: `_run` runs the queue next."""
