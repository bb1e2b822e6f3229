"""The path of every request, used by Predict, ModelInfer and any method added later.

    parse            the door       message -> Request
    resolve          the engine     the model version that the request refers to
    validate, plan   the door       Request -> Query: inputs in numpy, and the outputs that the graph must return
    run              the engine     the rows, merged with those of other requests
    score, encode    the door       outputs -> message
    record           the recorder   the request, the result, and the time of each step

A door is the wire format of one method: a subclass of Request and one of Query. Nothing else depends on the method.
"""

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from weakref import WeakSet

from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.errors import InvalidRequestError, RequestError
from serving.engines.interface import Engine, Job, ModelVersion
from serving.telemetry.record import NOT_RECORDED, CallRecord, CallRecorder
from serving.transport.router import InlineCall

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RequestLimits:
    """Limits of a request. `refuse_unknown`: a column that is not a feature of the model is an error instead of
    ignored."""

    max_rows: int = 10_000
    max_levels: int = 200
    refuse_unknown: bool = False


@dataclass(slots=True, eq=False)
class Query(ABC):
    """A checked request that can be run, with its columns as numpy arrays [rows]."""

    model: ModelVersion
    inputs: Mapping[str, Array]
    rows: int
    # Outputs of the graph that the response needs.
    wanted: tuple[str, ...]
    request_id: str
    # Descriptions of the columns that are not features of the model.
    unknown: tuple[str, ...]

    @abstractmethod
    def encode(self, outputs: Tensors) -> bytes:
        """Score the rows and encode the response; `outputs` contains at least those wanted."""


class Request(ABC):
    """A parsed message that has not been checked."""

    __slots__ = ()

    @property
    @abstractmethod
    def request_id(self) -> str: ...

    @abstractmethod
    def target(self) -> tuple[str, int]:
        """The requested model and version; an empty name means the default model, 0 the version in service."""

    @abstractmethod
    def plan(self, model: ModelVersion, limits: RequestLimits) -> Query:
        """Check the request and plan its run. Raises InvalidRequestError if the model can't answer it."""


class Pipeline:
    def __init__(
        self, engine: Engine, limits: RequestLimits, deadline_s: float = 0.0, recorder: CallRecorder = NOT_RECORDED
    ) -> None:
        """`deadline_s` is an upper bound on the clients' deadlines; 0 means none."""
        self._engine = engine
        self._limits = limits
        self._deadline_s = deadline_s or math.inf
        self._recorder = recorder
        self._warned: WeakSet[ModelVersion] = WeakSet()

    def door(self, parse: Callable[[bytes], Request]) -> Callable[[bytes, InlineCall], None]:
        """An inline handler for messages that `parse` can parse."""
        return partial(self._serve, parse)

    def _serve(self, parse: Callable[[bytes], Request], message: bytes, call: InlineCall) -> None:
        record = call.record
        request = parse(message)
        # Set first, so that rejected requests are logged with their id.
        record.request_id = request.request_id
        name, version = request.target()
        caller = call.caller
        if caller is not None:
            # Before it is resolved: whether there is such a model is nobody's business who may not use it.
            caller.check_model(name or self._engine.default_model())
            record.identity = caller.identity.name
        record.model = model = self._engine.resolve(name, version)
        query = request.plan(model, self._limits)
        if query.unknown:
            self._take_unknown(query, record)
        record.inputs, record.rows = query.inputs, query.rows
        if caller is not None:
            caller.begin(query.rows)
        wanted = self._recorder.begin(record, query.wanted)
        deadline = min(call.deadline, time.time() + self._deadline_s)
        self._engine.submit(_QueryJob(query, wanted, call, self._engine, deadline))

    def _take_unknown(self, query: Query, record: CallRecord) -> None:
        """Count and log unknown columns, or raise InvalidRequestError if they are refused. By default they are not an
        error, because a client may already send a feature that only the next version uses."""
        model = query.model
        came = ", ".join(query.unknown)
        takes = ", ".join(f"{feature.name} ({feature.role})" for feature in model.metadata.features)
        if self._limits.refuse_unknown:
            raise InvalidRequestError(f"unknown {came}; model {model.name!r} version {model.version} has {takes}")
        record.unknown_features = len(query.unknown)
        if model not in self._warned:
            self._warned.add(model)
            _log.warning(
                "ignored unknown %s; %s version %d has %s. Later occurrences are only counted, in "
                "ghostless_unknown_features_total; --unknown-features refuse makes them errors",
                came,
                model.name,
                model.version,
                takes,
            )


class _QueryJob(Job):
    __slots__ = ("_call", "_engine", "_query")

    def __init__(
        self, query: Query, wanted: tuple[str, ...], call: InlineCall, engine: Engine, deadline: float
    ) -> None:
        super().__init__(query.model, query.inputs, query.rows, wanted, deadline, call.record.times)
        self._query = query
        self._call = call
        self._engine = engine

    def on_queued(self) -> None:
        self._call.watch(lambda: self._engine.cancel(self))

    def succeed(self, outputs: Tensors) -> None:
        message = self._query.encode(outputs)
        self._call.record.outputs = outputs
        self._call.answer(message)

    def fail(self, error: RequestError) -> None:
        self._call.fail(error)
