"""ModelInfer calls to one Triton, each with a callback for its end."""

import threading
import time
from collections.abc import Callable

import grpc

_MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"

# (code, details, the bytes of the response if the code is OK)
OnEnd = Callable[[grpc.StatusCode, str, bytes], None]


class InferCall:
    """One call; `cancel` ends it with CANCELLED, unless it has already ended."""

    __slots__ = ("_call", "_on_end")

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end: OnEnd | None = on_end
        self._call: grpc.Future[bytes] | None = None

    def started(self, call: "grpc.Future[bytes]") -> None:
        # It may already have ended.
        if self._on_end is not None:
            self._call = call

    def cancel(self) -> None:
        call = self._call
        if call is not None:
            call.cancel()

    def ended(self, code: grpc.StatusCode, details: str, message: bytes) -> None:
        # Drop both references: the caller keeps the call, and a reference cycle would keep the request's stream open
        # until the next garbage collection.
        on_end, self._on_end, self._call = self._on_end, None, None
        if on_end is not None:
            on_end(code, details, message)


class InferChannel:
    def __init__(self, channel: grpc.Channel) -> None:
        """Closes `channel` when it is closed."""
        self._channel = channel
        # Without a serializer, requests and responses are bytes.
        self._infer: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(_MODEL_INFER)
        self._changed = threading.Condition()
        self._under_way: set[InferCall] = set()
        self._stopped = False

    def start_call(self, message: bytes, deadline: float | None, on_end: OnEnd) -> InferCall:
        """`deadline` is in seconds since the epoch. `on_end` is called once, on a thread of the channel."""
        call = InferCall(on_end)
        with self._changed:
            if self._stopped:
                raise ConnectionError("the channel is closed")
            self._under_way.add(call)
        timeout_s = None if deadline is None else max(0.0, deadline - time.time())
        try:
            future = self._infer.future(message, timeout=timeout_s)
        except BaseException:
            self._forget(call)
            raise
        call.started(future)
        future.add_done_callback(lambda ended: self._on_done(call, ended))
        return call

    def close(self) -> None:
        """Cancel the calls in flight; `on_end` is called for each."""
        with self._changed:
            self._stopped = True
            left = list(self._under_way)
        for call in left:
            call.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)
        self._channel.close()

    def _on_done(self, call: InferCall, ended: "grpc.Future[bytes]") -> None:
        try:
            # The grpc.Future of a call is also a grpc.Call, which the type stubs do not know.
            assert isinstance(ended, grpc.Call)
            code = ended.code()
            message = ended.result() if code is grpc.StatusCode.OK else b""
            call.ended(code, ended.details() or "", message)
        finally:
            self._forget(call)

    def _forget(self, call: InferCall) -> None:
        with self._changed:
            self._under_way.discard(call)
            self._changed.notify_all()
