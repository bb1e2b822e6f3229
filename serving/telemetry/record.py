"""Record of one finished inline call: the client, the request, the result, and the time of each step.

It holds references to the arrays that were computed anyway, never copies, and nothing of gRPC's call, so that keeping
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
    """Of Predict or ModelInfer. `received`: the request's message is there; `answered`: the answer, or the error, is
    about to be sent; `times`: the engine's steps in between. `wall_offset` (sinks.py) turns all of them into seconds
    since the epoch.
    """

    method: str
    received: float
    times: Times = field(default_factory=Times)
    answered: float = 0.0
    # The gRPC status' name, "OK" for an answer, "CANCELLED" where the client left first; and its text.
    code: str = ""
    details: str = ""
    # None where the request did not get so far as to resolve one.
    model: ModelVersion | None = None
    request_id: str = ""
    # Whose call it is; empty where everybody may call.
    identity: str = ""
    # Whether the prediction is one of those that wait for their outcomes.
    is_stored: bool = False
    rows: int = 0
    # Columns that the model does not take, and which were ignored.
    unknown_features: int = 0
    # The graph's inputs by name [rows], and of an OK answer its outputs as they were served, as far as a sink or the
    # metrics need them.
    inputs: Tensors = field(default_factory=dict)
    outputs: Tensors = field(default_factory=dict)
    # Whether the uncertainty metrics sample the answer, and some rows of its wide outputs for them.
    is_sampled: bool = False
    wide_rows: Tensors = field(default_factory=dict)
    # The call's gRPC metadata; empty unless a sink needs it.
    metadata: Metadata = ()


class CallRecorder(Protocol):
    """Takes a call's record through the call's life. Each call ends with exactly one of `answered`, `end`, `refused`
    and `client_left`; one that was rejected before it had a record, with `rejected_unparsed` or `unknown_method`."""

    @property
    def needs_metadata(self) -> bool:
        """Whether records must carry the calls' gRPC metadata."""

    def begin(self, record: CallRecord, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The graph's outputs to run for a request that is about to be queued and `asked` for these."""

    def answered(self, record: CallRecord) -> None: ...

    def end(self, record: CallRecord, code: str, error: RequestError | None = None) -> None:
        """The call failed."""

    def refused(self, record: CallRecord) -> None:
        """The message is too large to be taken."""

    def client_left(self, record: CallRecord, expired: bool) -> None:
        """Nobody waits for the answer any more: the client left, or its deadline passed."""

    def rejected_unparsed(self, method: str) -> None:
        """A call that found the queue full."""

    def unknown_method(self) -> None:
        """A call of a method that nobody serves."""

    def start(self) -> None: ...

    def flush(self) -> None:
        """Process everything recorded until now."""

    def stop(self) -> None:
        """After the last call ended."""


class NullRecorder:
    """The recorder of a server that nobody observes: it keeps nothing."""

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
