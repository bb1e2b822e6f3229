"""What runs models: the one seam between the facades and the engines (embedded, triton, a fake in tests).

Work goes in as a Job, which is notified once how it ended. That is a callback and not a return value because an engine
may run it later, merged with others, on a thread of its own, while the thread that took the request takes the next.
"""

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.errors import RequestError
from ghostless.contract.metadata import ModelMetadata
from serving.errors import EngineError, ExpiredError, NonFiniteError, OverloadedError

_log = logging.getLogger(__name__)

NO_DEADLINE = float("inf")
# Above this BLAS would start threads for one product.
_ONE_PASS = 10_000


class VersionState(Enum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class VersionStatus:
    version: int
    state: VersionState
    in_service: bool
    message: str = ""


@dataclass(frozen=True, eq=False)
class ModelVersion:
    """A version that can be asked: what a request needs to know to be checked, scored and encoded.

    It is compared by identity: a version that was loaded again is another one.
    """

    name: str
    version: int
    metadata: ModelMetadata
    outputs: tuple[str, ...]
    # All `ghostless.*` metadata of the file, as JSON texts.
    properties: Mapping[str, str]

    @cached_property
    def labels(self) -> tuple[str, str, str]:
        """Its name, version and head, as metrics have them."""
        return self.name, str(self.version), self.metadata.head


@dataclass(frozen=True)
class ModelStatus:
    """A model, its versions ascending, the one in service (None while none is ready) and the one that should be, 0
    where nobody says."""

    name: str
    versions: tuple[VersionStatus, ...]
    serving: ModelVersion | None
    wanted: int = 0


@dataclass(frozen=True)
class EndpointState:
    """One of the servers that an engine has its models run by. `breaker`: 0 closed, 1 half-open, 2 open."""

    ready: bool
    breaker: int
    retries: int


@dataclass(frozen=True)
class LoadTimes:
    """What loading a version in this process took: reading and checking the file, and the first runs."""

    model: ModelVersion
    load_s: float
    warm_up_s: float


@dataclass(frozen=True)
class EngineStatistics:
    """What an engine measures of itself, for gauges. `queued_rows`: rows that wait, or that are with a Triton;
    `loaded`: versions that this process loaded itself; `endpoints`: the servers that run the models, by address;
    `has_run`: whether it has run a request."""

    queued_rows: int
    loaded: Sequence[LoadTimes] = ()
    endpoints: Mapping[str, EndpointState] = field(default_factory=dict)
    has_run: bool = False


@dataclass(slots=True, eq=False)
class Times:
    """When a job's steps were, in seconds of time.monotonic(); 0.0 for those that it did not come to.

    queued     the engine was given it
    gathered   a slot (or a Triton) took it up, and waits for more rows to merge where a window says so
    started    the graph begins to run, or the message to Triton to leave
    computed   the outputs are there, of a run with `batch_rows` rows
    """

    queued: float = 0.0
    gathered: float = 0.0
    started: float = 0.0
    computed: float = 0.0
    batch_rows: int = 0


class Job(ABC):
    """One request's rows on their way through an engine."""

    __slots__ = ("cancelled", "deadline", "inputs", "model", "rows", "times", "wanted")

    def __init__(
        self,
        model: ModelVersion,
        inputs: Tensors,
        rows: int,
        wanted: tuple[str, ...],
        deadline: float = NO_DEADLINE,
        times: Times | None = None,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.rows = rows
        self.wanted = wanted
        self.deadline = deadline  # seconds since the epoch
        self.cancelled = False
        self.times = times or Times()

    @abstractmethod
    def succeed(self, outputs: Tensors) -> None:
        """The outputs `wanted`, this job's rows only. Called at most once, and never after `fail`."""

    @abstractmethod
    def fail(self, error: RequestError) -> None:
        """Why there is no answer."""

    @abstractmethod
    def on_queued(self) -> None:
        """The engine holds the job, in its queue or in a long call: from now on watch whether its client leaves."""

    def finish(self, outputs: Tensors, known_finite: bool = False) -> None:
        """Succeed, unless what the model returned can't be answered with. `known_finite`: it has been looked at."""
        try:
            if not known_finite:
                check_finite(self.model, outputs)
            self.succeed(outputs)
        except RequestError as error:
            self.fail(error)
        except Exception:
            _log.exception("building a response of %s version %d failed", self.model.name, self.model.version)
            self.fail(EngineError("the response could not be built; see the server's log"))


class Engine(Protocol):
    def resolve(self, model: str, version: int) -> ModelVersion:
        """The version that a request means; empty name: the default model, 0: the version in service."""

    def submit(self, job: Job) -> None:
        """Have the job run soon. OverloadedError if the queue is full."""

    def check_overload(self) -> OverloadedError | None:
        """The error to reject a request with before it is parsed; None: parse it."""

    def run_queued(self) -> float | None:
        """Run some of the queued jobs on the calling thread; does nothing in an engine with threads of its own.

        Returns after how many seconds to call again; None: not before more is submitted.
        """

    def cancel(self, job: Job) -> None:
        """The client left: a job that has not started yet never will."""

    def models(self) -> Sequence[ModelStatus]: ...

    def default_model(self) -> str:
        """Its name; empty if a request must name one."""

    def is_ready(self) -> bool:
        """Whether every model has a version that can serve."""

    def statistics(self) -> EngineStatistics: ...


def infer(engine: Engine, model: str, version: int, inputs: Tensors, deadline: float = NO_DEADLINE) -> Tensors:
    """Run the rows through all outputs of the model and wait for them."""
    served = engine.resolve(model, version)
    job = _BlockingJob(served, inputs, len(next(iter(inputs.values()))), served.outputs, deadline)
    engine.submit(job)
    run_until_idle(engine)
    return job.result()


def run_until_idle(engine: Engine) -> None:
    """Run queued jobs on the calling thread until none is left for it."""
    while (due := engine.run_queued()) is not None:
        time.sleep(due)


class _BlockingJob(Job):
    __slots__ = ("_done", "_error", "_outputs")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._done = threading.Event()
        self._outputs: Tensors = {}
        self._error: RequestError | None = None

    def succeed(self, outputs: Tensors) -> None:
        self._outputs = outputs
        self._done.set()

    def fail(self, error: RequestError) -> None:
        self._error = error
        self._done.set()

    def on_queued(self) -> None:
        """Its client is the thread that waits in `result`."""

    def result(self) -> Tensors:
        timeout = None if self.deadline == NO_DEADLINE else max(0.0, self.deadline - time.time())
        if not self._done.wait(timeout):
            raise ExpiredError("the deadline passed while the request was waiting")
        if self._error is not None:
            raise self._error
        return self._outputs


def all_finite(values: Array) -> bool:
    """As np.isfinite(values).all(), at half the price: one pass, no array of flags.

    A sum of squares is finite only if every value is; it can overflow where all are, and then they are looked at.
    """
    flat = values.ravel()
    parts = [flat] if flat.size <= _ONE_PASS else np.split(flat, range(_ONE_PASS, flat.size, _ONE_PASS))
    return all(math.isfinite(part.dot(part)) for part in parts) or bool(np.isfinite(flat).all())


def are_finite(outputs: Tensors) -> bool:
    """One look for all jobs of a batch; where it finds something, each job finds out whether it is its own."""
    return all(map(all_finite, outputs.values()))


def check_finite(model: ModelVersion, outputs: Tensors) -> None:
    """Never a NaN in an OK answer: a model that produces one is at fault, not its client."""
    for name, values in outputs.items():
        if not all_finite(values):
            _log.error("%s version %d returned a non-finite %s", model.name, model.version, name)
            raise NonFiniteError(f"model {model.name!r} version {model.version} returned a non-finite {name}")
