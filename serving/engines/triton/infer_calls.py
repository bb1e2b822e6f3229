"""ModelInfer calls to one Triton, each with a callback for its end.

grpc's futures start a thread whenever a channel's first call begins and end it with its last one, and wrap each call in
locks and conditions that nobody waits on here; together that is a third of what a call costs the facade. So the calls
are made on grpc._cython.cygrpc, a private layer for which pyproject.toml pins grpcio, and one thread for the
channel's whole life tells how they ended.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # a C extension without types

_log = logging.getLogger(__name__)

_MODEL_INFER = b"/inference.GRPCInferenceService/ModelInfer"
_NO_FLAGS = 0
_PROPAGATE = cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS
_CODES = {code.value[0]: code for code in grpc.StatusCode}

# (code, details, the answer's bytes where the code is OK)
OnEnd = Callable[[grpc.StatusCode, str, bytes], None]


class InferCall:
    """One call; `cancel` makes it end as CANCELLED, unless it has ended."""

    __slots__ = ("_call", "_on_end")

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end: OnEnd | None = on_end
        self._call: Any = None

    def started(self, call: Any) -> None:
        # It may have ended by now.
        if self._on_end is not None:
            self._call = call

    def cancel(self) -> None:
        call = self._call
        if call is not None:
            call.cancel(cygrpc.StatusCode.cancelled, "the facade cancelled the call")

    def __call__(self, event: Any) -> None:
        # Drop both references: the caller holds on to the call, and a cycle would keep its request's stream open until
        # the collector comes round, which is seldom.
        on_end, self._on_end, self._call = self._on_end, None, None
        if on_end is None:
            return
        message, code, details = b"", grpc.StatusCode.UNKNOWN, ""
        for operation in event.batch_operations:
            kind = operation.type()
            if kind == cygrpc.OperationType.receive_message:
                message = operation.message() or b""
            elif kind == cygrpc.OperationType.receive_status_on_client:
                code = _CODES.get(operation.code(), grpc.StatusCode.UNKNOWN)
                details = operation.details()
        on_end(code, details if isinstance(details, str) else details.decode(errors="replace"), message)


class InferChannel:
    def __init__(self, address: str, options: Sequence[tuple[str, int]]) -> None:
        self._channel = cygrpc.Channel(address.encode(), tuple(options), None)
        self._lock = threading.Lock()
        self._under_way: set[InferCall] = set()
        self._stopped = False
        self._thread = threading.Thread(target=self._dispatch_events, name=f"infer {address}", daemon=True)
        self._thread.start()

    def start_call(self, message: bytes, deadline: float | None, on_end: OnEnd) -> InferCall:
        """`deadline` in seconds since the epoch. `on_end` is called once, on the channel's thread."""
        with self._lock:
            if self._stopped:
                raise ConnectionError("the channel is closed")
            return self._start(message, deadline, on_end)

    def close(self) -> None:
        """Calls under way are cancelled, and `on_end` is called for each."""
        with self._lock:
            left = list(self._under_way)
            # The thread waits for an event without end; the end of a call that has expired already is one.
            self._start(b"", 0.0, lambda *_: None)
            self._stopped = True
        for call in left:
            call.cancel()
        self._thread.join()
        self._channel.close(cygrpc.StatusCode.cancelled, "the channel is closed")

    def _start(self, message: bytes, deadline: float | None, on_end: OnEnd) -> InferCall:
        call = InferCall(on_end)
        operations = (
            cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),
            cygrpc.SendMessageOperation(message, _NO_FLAGS),
            cygrpc.SendCloseFromClientOperation(_NO_FLAGS),
            cygrpc.ReceiveInitialMetadataOperation(_NO_FLAGS),
            cygrpc.ReceiveMessageOperation(_NO_FLAGS),
            cygrpc.ReceiveStatusOnClientOperation(_NO_FLAGS),
        )
        self._under_way.add(call)
        call.started(
            self._channel.integrated_call(
                _PROPAGATE, _MODEL_INFER, None, deadline, None, None, ((operations, call),), None, None
            )
        )
        return call

    def _dispatch_events(self) -> None:
        while not (self._stopped and not self._under_way):
            event = self._channel.next_call_event()
            if event.completion_type == cygrpc.CompletionType.queue_timeout:
                continue
            try:
                event.tag(event)
            except Exception:
                _log.exception("handling the end of a call failed")
            with self._lock:
                self._under_way.discard(event.tag)
            # Keeping an event alive while waiting keeps its call alive with it.
            del event
