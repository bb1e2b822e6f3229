"""Serves methods that are not inline: on separate threads, through the handlers of gRPC's generated code.

So health, reflection, models and outcomes use the same packages and classes as with gRPC's own server.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from ghostless.contract import http2_frames as frames
from serving.http2.headers import Metadata
from serving.http2.stream import MessageError, MessageTooLargeError
from serving.transport.connection import ServedStream
from serving.transport.router import Transport, end_call

if TYPE_CHECKING:
    from serving.security.gate import Caller

_log = logging.getLogger(__name__)

_END = object()
# Maximum number of calls that wait for a thread; these calls are short.
_WAITING = 64
# Memory of a waiting message in addition to its bytes.
_MESSAGE_BYTES = 100


class HandlerThreads:
    """Passed to generated `add_..._to_server` functions instead of a grpc.Server."""

    def __init__(self, transport: Transport, max_message_bytes: int, threads: int) -> None:
        self._transport = transport
        self._max_message_bytes = max_message_bytes
        self._threads = threads
        self._busy = 0
        self._lock = threading.Lock()
        self._endless: set[HandlerContext] = set()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="handler")

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Ignored: the same handlers are also registered with their method names."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        for name, handler in handlers.items():
            self._transport.add_threaded(f"/{service}/{name}", self._starter(handler), bool(handler.request_streaming))

    def stop(self) -> None:
        """End calls that would never end: watches, and streams that clients leave open."""
        for context in list(self._endless):
            context.finish(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        self._executor.shutdown(wait=False)

    def _starter(self, handler: Any) -> Callable[[ServedStream], None]:
        # Clients can occupy a thread with these as long as they like, so other calls must keep some threads.
        most = self._threads // 2 if handler.request_streaming else self._threads + _WAITING

        def start(stream: ServedStream) -> None:
            with self._lock:
                free = self._busy < most
                self._busy += free
            if not free:
                end_call(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls of this kind are under way")
                return
            context = HandlerContext(stream, self._max_message_bytes)
            if handler.request_streaming or handler.response_streaming:
                self._endless.add(context)
                context.add_callback(lambda: self._endless.discard(context))
            try:
                self._executor.submit(self._run, handler, context)
            except RuntimeError:
                with self._lock:
                    self._busy -= 1
                context.finish(grpc.StatusCode.UNAVAILABLE, "the server is stopping")

        return start

    def _run(self, handler: Any, context: "HandlerContext") -> None:
        try:
            _behave(handler, context)
        finally:
            with self._lock:
                self._busy -= 1


def _behave(handler: Any, context: "HandlerContext") -> None:
    try:
        messages = (handler.request_deserializer(message) for message in context.messages())
        request = messages if handler.request_streaming else next(messages)
        behaviour = handler.stream_stream or handler.unary_stream or handler.stream_unary or handler.unary_unary
        if getattr(behaviour, "experimental_non_blocking", False):
            # gRPC's health watch needs no thread; it sends whenever something changes.
            behaviour(request, context, partial(_send_or_end, handler, context))
            return
        answer = behaviour(request, context)
        for each in answer if handler.response_streaming else (answer,):
            if not context.send(handler.response_serializer(each)):
                return
        context.end()
    except _AbortedError:
        context.end()
    except StopIteration:
        context.finish(grpc.StatusCode.INVALID_ARGUMENT, "takes exactly one request message, none came")
    except MessageTooLargeError as error:
        context.finish(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
    except (MessageError, DecodeError) as error:
        context.finish(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except Exception:
        if context.is_active():
            _log.exception("a call failed")
            context.finish(grpc.StatusCode.INTERNAL, "internal error; see the server's log")


def _send_or_end(handler: Any, context: "HandlerContext", answer: Any) -> None:
    if answer is None:
        context.end()
    else:
        context.send(handler.response_serializer(answer))


def caller_of(context: grpc.ServicerContext) -> "Caller | None":
    """The caller of a servicer's call; None if there is no access control."""
    return context.caller if isinstance(context, HandlerContext) else None


class _AbortedError(Exception):
    pass


class HandlerContext(grpc.ServicerContext):
    """The context of a call for a servicer's method."""

    def __init__(self, stream: ServedStream, max_message_bytes: int) -> None:
        self._stream = stream
        self._max_message_bytes = max_message_bytes
        self._deadline = time.monotonic() + stream.head.timeout_s
        self._incoming: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Bytes received, counted by the polling thread, and bytes consumed, counted by the handler's thread.
        self._came = self._taken = 0
        self._has_all = False
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._code, self._details = grpc.StatusCode.OK, ""
        self._trailing: Metadata = ()
        stream.on_cancelled = self._on_client_left
        if stream.is_streaming:
            stream.on_data = self._more
        self._more()

    def _more(self) -> None:
        """On the polling thread: passes complete messages to the handler's thread."""
        try:
            for message in self._stream.messages(self._max_message_bytes):
                self._came += len(message) + _MESSAGE_BYTES
                self._incoming.put(message)
        except MessageError as error:
            self._incoming.put(error)
            return
        if self._has_all:
            return
        if self._stream.half_closed:
            self._has_all = True
            self._incoming.put(_END)
        elif self._came - self._taken > self._max_message_bytes + _MESSAGE_BYTES:
            self._stream.connection.reset(self._stream, frames.ENHANCE_YOUR_CALM)

    def messages(self) -> Iterator[bytes]:
        while True:
            message = self._incoming.get()
            if message is _END:
                return
            if isinstance(message, MessageError):
                raise message
            self._taken += len(message) + _MESSAGE_BYTES
            yield message

    def send(self, message: bytes) -> bool:
        return self._stream.connection.send(self._stream, message)

    def end(self) -> None:
        end_call(self._stream, self._code, self._details, self._trailing)
        self._incoming.put(_END)  # ends a wait for messages
        self._call_back()

    def finish(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details
        self.end()

    def _on_client_left(self) -> None:
        self._incoming.put(_END)
        self._call_back()

    def _call_back(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_active(self) -> bool:
        return not self._stream.ended

    def time_remaining(self) -> float | None:  # type: ignore[override]  # as documented, and unlike its stub
        return None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())

    def cancel(self) -> bool:
        self.finish(grpc.StatusCode.CANCELLED, "the server cancelled the call")
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        with self._lock:
            is_active = not self._stream.ended
            if is_active:
                self._callbacks.append(callback)
        if not is_active:
            # gRPC's health watch ignores the return value, and would keep the watcher forever.
            callback()
        return is_active

    def invocation_metadata(self) -> Metadata:
        return self._stream.head.metadata

    def peer(self) -> str:
        return self._stream.connection.peer

    @property
    def caller(self) -> "Caller | None":
        """The caller; None if there is no access control."""
        return self._stream.caller

    def peer_identities(self) -> None:
        return None

    def peer_identity_key(self) -> None:
        return None

    def auth_context(self) -> dict[str, Any]:
        return {}

    def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        """Ignored: none of these services sends initial metadata."""

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        self._trailing = tuple(trailing_metadata)

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self._code, self._details = code, details
        raise _AbortedError

    def abort_with_status(self, status: Any) -> NoReturn:
        self._trailing = tuple(status.trailing_metadata or ())
        self.abort(status.code, status.details)
