"""What one call of an inline method leaves behind when it ended: who asked what, what came out, and when each step was.

It holds references to the arrays that were computed anyway, never copies, and nothing of gRPC's call, so that keeping
a record keeps no stream open.
"""

from types import MappingProxyType

from ghostless.contract.arrays import Tensors
from serving.engines.interface import ModelVersion, Times
from serving.http2.headers import Metadata

NO_TENSORS: Tensors = MappingProxyType({})


class CallRecord(Times):
    """Of Predict or ModelInfer. Besides the engine's times there are

    received   the request's message is there
    answered   the answer, or the error, is about to be sent

    and `wall_offset` (sinks.py) turns all of them into seconds since the epoch.
    """

    __slots__ = (
        "answered",
        "code",
        "details",
        "inputs",
        "is_sampled",
        "is_stored",
        "metadata",
        "method",
        "model",
        "outputs",
        "received",
        "request_id",
        "rows",
        "wide_rows",
    )

    def __init__(self, method: str, received: float) -> None:
        # Not by Times' own: one call less for every request.
        self.queued = self.gathered = self.started = self.computed = 0.0
        self.batch_rows = 0
        self.method = method
        self.received = received
        self.answered = 0.0
        # The gRPC status' name, "OK" for an answer, "CANCELLED" where the client left first; and its text.
        self.code = ""
        self.details = ""
        # None where the request did not get so far as to resolve one.
        self.model: ModelVersion | None = None
        self.request_id = ""
        # Whether the prediction is one of those that wait for their outcomes.
        self.is_stored = False
        self.rows = 0
        # The graph's inputs by name [rows], and of an OK answer its outputs as they were served, as far as a sink or
        # the metrics need them.
        self.inputs: Tensors = NO_TENSORS
        self.outputs: Tensors = NO_TENSORS
        # Whether the uncertainty metrics sample the answer, and some rows of its wide outputs for them.
        self.is_sampled = False
        self.wide_rows: Tensors = NO_TENSORS
        # The call's gRPC metadata; empty unless a sink needs it.
        self.metadata: Metadata = ()
