"""The one path of a request, behind Predict, ModelInfer and any later door.

    parse            the door       message -> Request
    resolve          the engine     the model version that the request means
    validate, plan   the door       Request -> Query: inputs in numpy, and which outputs the graph must return
    run              the engine     the rows, merged with those of other requests where there are any
    score, encode    the door       outputs -> message
    record           the recorder   what was asked, what came out, when each step was

A door is a wire format: a subclass of Request and one of Query. Nothing else about a request depends on it.
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
    """What a request may hold. `refuse_unknown`: a column that the model does not take is an error, not ignored."""

    max_rows: int = 10_000
    max_levels: int = 200
    refuse_unknown: bool = False


@dataclass(slots=True, eq=False)
class Query(ABC):
    """A request that can be run: checked, and its columns in numpy [rows]."""

    model: ModelVersion
    inputs: Mapping[str, Array]
    rows: int
    # Outputs of the graph that the answer is made from.
    wanted: tuple[str, ...]
    request_id: str
    # Columns that came and that the model does not take, as a person would name them.
    unknown: tuple[str, ...]

    @abstractmethod
    def encode(self, outputs: Tensors) -> bytes:
        """Score the rows and write the answer; `outputs` hold at least those wanted."""


class Request(ABC):
    """A message of one door: parsed, nothing of it checked."""

    __slots__ = ()

    @property
    @abstractmethod
    def request_id(self) -> str: ...

    @abstractmethod
    def target(self) -> tuple[str, int]:
        """Model and version asked for; empty and 0: the default model, the version in service."""

    @abstractmethod
    def plan(self, model: ModelVersion, limits: RequestLimits) -> Query:
        """InvalidRequestError where the model can't answer it."""


class Pipeline:
    def __init__(
        self, engine: Engine, limits: RequestLimits, deadline_s: float = 0.0, recorder: CallRecorder = NOT_RECORDED
    ) -> None:
        """`deadline_s` bounds what clients set; 0: it does not."""
        self._engine = engine
        self._limits = limits
        self._deadline_s = deadline_s or math.inf
        self._recorder = recorder
        self._warned: WeakSet[ModelVersion] = WeakSet()

    def door(self, parse: Callable[[bytes], Request]) -> Callable[[bytes, InlineCall], None]:
        """An inline handler for the messages that `parse` understands."""
        return partial(self._serve, parse)

    def _serve(self, parse: Callable[[bytes], Request], message: bytes, call: InlineCall) -> None:
        record = call.record
        request = parse(message)
        # First of all, so that what is logged of a refusal can be found by it.
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
        """A client may send a feature that only the next version knows; so it is no error, unless it is to be one."""
        model = query.model
        came = ", ".join(query.unknown)
        takes = ", ".join(f"{feature.name} ({feature.role})" for feature in model.metadata.features)
        if self._limits.refuse_unknown:
            raise InvalidRequestError(f"unknown {came}; model {model.name!r} version {model.version} takes {takes}")
        record.unknown_features = len(query.unknown)
        if model not in self._warned:
            self._warned.add(model)
            _log.warning(
                "ignored unknown %s; %s version %d takes %s. Later occurrences are only counted, in "
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
