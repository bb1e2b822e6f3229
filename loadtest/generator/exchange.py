"""One request in flight, and the part of its response that has arrived."""

from loadtest.generator.request_frames import REQUEST_ID_BYTES, UNKNOWN


class Exchange:
    """A request and its response. Times are those of time.monotonic(). `code` is the gRPC status, valid once it has
    ended."""

    __slots__ = ("body", "code", "due", "prepared", "request_id", "sent")

    def __init__(self, due: float, prepared: int, request_id: bytes) -> None:
        self.due = due
        self.sent = 0.0
        self.prepared = prepared
        self.request_id = request_id
        self.body: list[bytes] = []
        self.code = UNKNOWN


class RequestIdSequence:
    """Request ids of equal length, unique over all processes of a load."""

    def __init__(self, share: int) -> None:
        self._prefix = f"{share:02x}-"
        self._number = 0

    def next(self) -> bytes:
        self._number += 1
        return f"{self._prefix}{self._number:0{REQUEST_ID_BYTES - len(self._prefix)}x}".encode()
