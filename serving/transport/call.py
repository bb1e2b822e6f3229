"""One call of an inline method: what it was asked with, and how it is answered."""

import math
import time
from collections.abc import Callable

import grpc

from ghostless.contract.errors import RequestError
from serving.http2.headers import Metadata, trailers
from serving.telemetry.record import CallRecord, CallRecorder
from serving.transport.connection import ServedStream
from serving.transport.statuses import status_of


class InlineCall:
    """One call of an inline method: its request is there, its answer is awaited."""

    __slots__ = ("_recorder", "_stream", "deadline", "record")

    def __init__(self, stream: ServedStream, record: CallRecord, recorder: CallRecorder) -> None:
        """`record` is given to `recorder` when the call ended."""
        self._stream = stream
        self._recorder: CallRecorder | None = recorder
        self.record = record
        # Seconds since the epoch; infinite if the client set none.
        timeout_s = stream.head.timeout_s
        self.deadline = time.time() + timeout_s if timeout_s != math.inf else math.inf

    @property
    def metadata(self) -> Metadata:
        return self._stream.head.metadata

    def watch(self, on_cancelled: Callable[[], None]) -> None:
        """Have `on_cancelled` called if the client leaves before the answer."""
        self._stream.on_cancelled = lambda: self._on_client_left(on_cancelled)
        if self._stream.is_over:
            # Another thread was quicker; what refers to the call and its request would keep them.
            self._stream.on_cancelled = None

    def answer(self, message: bytes) -> None:
        if not self._stream.ended:
            recorder = self._recorder
            if recorder is not None:
                # Before the answer leaves, so that an answer that arrived is counted.
                self._recorder = None
                recorder.answered(self.record)
            self._stream.connection.answer(self._stream, message)

    def fail(self, error: RequestError) -> None:
        status = status_of(error, self.deadline - time.time())
        if not self._stream.ended:
            self._count(lambda recorder: recorder.end(self.record, status.code.name, error))
            end_call(self._stream, status.code, status.details, status.trailing_metadata)

    def refuse(self, why: str) -> None:
        """The message is too large to be taken."""
        self._count(lambda recorder: recorder.refused(self.record))
        end_call(self._stream, grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    def _on_client_left(self, on_cancelled: Callable[[], None]) -> None:
        on_cancelled()
        self._count(lambda recorder: recorder.client_left(self.record, expired=self.deadline <= time.time()))

    def _count(self, count: Callable[[CallRecorder], None]) -> None:
        """How it ended; once."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            count(recorder)


def end_call(stream: ServedStream, code: grpc.StatusCode, details: str, metadata: Metadata = ()) -> None:
    stream.connection.end(stream, trailers(code.value[0], details, metadata))
