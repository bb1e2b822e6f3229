"""Record of one finished inline call: the client, the request, the result, and the time of each step.

It references the arrays of the request instead of copying them, and does not reference the call itself, so that storing
a record keeps no stream open.
"""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from ghostless.contract.arrays import Tensors
from ghostless.contract.errors import RequestError
from serving.engines.interface import ModelVersion, Times
from serving.http2.headers import Metadata

NO_TENSORS: Tensors = MappingProxyType({})


@dataclass(slots=True, eq=False)
class CallRecord:
    """Record of a Predict or ModelInfer call. `received`: when the request message was complete; `answered`: when the
    response or the error was about to be sent; `times`: the engine's steps in between. Adding `wall_offset` (sinks.py)
    converts them to seconds since the epoch.
    """

    method: str
    received: float
    times: Times = field(default_factory=Times)
    answered: float = 0.0
    # Name and message of the gRPC status; "OK" for a response, "CANCELLED" if the client disconnected first.
    code: str = ""
    details: str = ""
    # None if the request failed before its model was resolved.
    model: ModelVersion | None = None
    request_id: str = ""
    # Identity of the caller; empty if the server has no identities.
    identity: str = ""
    # Whether the prediction is stored until its outcome is reported.
    is_stored: bool = False
    rows: int = 0
    # Number of columns that are not features of the model and were ignored.
    unknown_features: int = 0
    # The graph's inputs by name [rows] and, for OK responses, its outputs as served; only those that a sink or the
    # metrics need.
    inputs: Tensors = field(default_factory=dict)
    outputs: Tensors = field(default_factory=dict)
    # Whether the response is sampled for the uncertainty metrics, and some rows of its wide outputs.
    is_sampled: bool = False
    wide_rows: Tensors = field(default_factory=dict)
    # The call's gRPC metadata; empty unless a sink needs it.
    metadata: Metadata = ()


class CallRecorder(Protocol):
    """Receives the events of a call. Each call ends with exactly one of `answered`, `end`, `refused` and `client_left`,
    or, if it was rejected before it had a record, with `rejected_unparsed` or `unknown_method`."""

    @property
    def needs_metadata(self) -> bool:
        """Whether records must contain the calls' gRPC metadata."""

    def begin(self, record: CallRecord, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The graph outputs to compute for a request that is about to be queued and needs the outputs `asked`."""

    def answered(self, record: CallRecord) -> None: ...

    def end(self, record: CallRecord, code: str, error: RequestError | None = None) -> None:
        """The call failed."""

    def refused(self, record: CallRecord) -> None:
        """The message is too large."""

    def client_left(self, record: CallRecord, expired: bool) -> None:
        """The client disconnected or cancelled, or its deadline passed."""

    def rejected_unparsed(self, method: str) -> None:
        """A call was rejected without parsing, because the queue is full."""

    def unknown_method(self) -> None:
        """A call of a method that does not exist."""

    def start(self) -> None: ...

    def flush(self) -> None:
        """Process everything recorded so far."""

    def stop(self) -> None:
        """Call this after the last call has ended."""


class NullRecorder:
    """The recorder of a server without telemetry; it does nothing."""

    needs_metadata = False

    def begin(self, record: CallRecord, asked: tuple[str, ...]) -> tuple[str, ...]:
        return asked

    def answered(self, record: CallRecord) -> None: ...

    def end(self, record: CallRecord, code: str, error: RequestError | None = None) -> None: ...

    def refused(self, record: CallRecord) -> None: ...

    def client_left(self, record: CallRecord, expired: bool) -> None: ...

    def rejected_unparsed(self, method: str) -> None: ...

    def unknown_method(self) -> None: ...

    def start(self) -> None: ...

    def flush(self) -> None: ...

    def stop(self) -> None: ...


NOT_RECORDED: CallRecorder = NullRecorder()
