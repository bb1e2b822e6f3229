"""What one call of a hot method leaves behind when it ended: who asked what, what came out, and when each step was.

It holds references to the arrays that were computed anyway, never copies, and nothing of gRPC's call, so that keeping
a record keeps no stream open.
"""

from types import MappingProxyType
from typing import Literal

from serving.engines.interface import ModelVersion, Tensors

Method = Literal["Predict", "ModelInfer"]
Metadata = tuple[tuple[str, str | bytes], ...]

NO_TENSORS: Tensors = MappingProxyType({})


class CallRecord:
    """Times are seconds of time.monotonic(), 0.0 where a call never came so far; `wall_offset` (recorder.py) turns them
    into seconds since the epoch.

    received   the request's message is there
    queued     the engine was given the checked rows
    gathered   a slot (or a Triton) took them up, and waits for more rows to merge where a window says so
    started    the graph begins to run, or the message to Triton to leave
    computed   the outputs are there
    answered   the answer, or the error, was given to gRPC
    """

    __slots__ = (
        "answered",
        "batch_rows",
        "code",
        "computed",
        "details",
        "gathered",
        "inputs",
        "metadata",
        "method",
        "model",
        "outputs",
        "queued",
        "received",
        "request_id",
        "rows",
        "started",
    )

    def __init__(self, method: Method, received: float) -> None:
        self.method = method
        self.received = received
        self.queued = self.gathered = self.started = self.computed = self.answered = 0.0
        # The gRPC status' name, "OK" for an answer, "CANCELLED" where the client left first; and its text.
        self.code = ""
        self.details = ""
        # None where the request did not get so far as to resolve one.
        self.model: ModelVersion | None = None
        self.request_id = ""
        self.rows = 0
        # Rows of the run that this request was part of; 0 if it never ran.
        self.batch_rows = 0
        # The graph's inputs by name [rows], and its outputs as they were served; outputs only of an OK answer.
        self.inputs: Tensors = NO_TENSORS
        self.outputs: Tensors = NO_TENSORS
        # The call's gRPC metadata; empty unless a sink needs it.
        self.metadata: Metadata = ()
