"""What a server takes from one client."""

from dataclasses import dataclass

from ghostless.contract import http2_frames as frames

# The connection's own window is opened again when so much of it is used.
WINDOW_STEP = 1 << 22
# Requests that are not yet whole may hold so many messages' worth of bytes.
_INCOMPLETE_MESSAGES = 4


@dataclass(frozen=True)
class Limits:
    max_message_bytes: int
    max_streams: int

    @property
    def stream_window(self) -> int:
        """So that a message needs no more of it."""
        return min(frames.LARGEST_WINDOW, self.max_message_bytes + (1 << 16))

    @property
    def connection_window(self) -> int:
        """So that no call waits for another's window."""
        return min(frames.LARGEST_WINDOW, max(self.incomplete_bytes, 4 * WINDOW_STEP))

    @property
    def incomplete_bytes(self) -> int:
        """Of all requests together that are not yet whole."""
        return _INCOMPLETE_MESSAGES * self.max_message_bytes
