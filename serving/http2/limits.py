"""What a server accepts from one client, and stores for it: each limit with its reason."""

from dataclasses import dataclass

from ghostless.contract import http2_frames as frames


@dataclass(frozen=True)
class Limits:
    """Of one connection. The first two are settings of the server; the others follow from how it is built."""

    # A request is held in memory until it is whole.
    max_message_bytes: int
    # Each open call holds a place in the engine's queue and its request; more are refused with REFUSED_STREAM.
    max_streams: int
    # Frames are copied once; above this size copying larger ones saves nothing. At least 16,384 (RFC 9113, 4.2).
    max_frame_bytes: int = 1 << 20
    # A header block is decoded on the thread that serves all clients: a megabyte of Huffman codes takes 0.2 s.
    max_header_bytes: int = 16_384
    # Decoded heads stored for equal blocks; a client uses a few, and one that varies them must not fill the memory.
    max_cached_heads: int = 256
    # Requests that are not whole may hold this many messages' worth of bytes on one connection.
    incomplete_messages: int = 4
    # The connection's window is reopened after this many bytes: often enough never to block, seldom enough to be free.
    window_step: int = 1 << 22
    # Pieces of a streamed answer that may wait for the client's window; a client that never opens it is reset.
    max_held_back_pieces: int = 256
    # Streams that the server reset whose late frames are discarded. The client may not know of the reset yet; a
    # frame that comes after as many other resets ends the connection.
    max_remembered_resets: int = 1024
    # Stream numbers that a client skipped are closed; this many gaps are told apart from streams that were used.
    max_remembered_gaps: int = 64
    # Unsent bytes above which nothing more is read: a client that asks and does not read must not fill the memory.
    max_unsent_bytes: int = 64 << 20
    # The same for pieces: an acknowledged PING has 17 bytes on the wire and some hundred in memory.
    max_unsent_pieces: int = 1 << 16

    @property
    def stream_window(self) -> int:
        """A whole message, so that none waits for its stream's window."""
        return min(frames.LARGEST_WINDOW, self.max_message_bytes + (1 << 16))

    @property
    def connection_window(self) -> int:
        """So that no call waits for the window that another used."""
        return min(frames.LARGEST_WINDOW, max(self.incomplete_bytes, 4 * self.window_step))

    @property
    def incomplete_bytes(self) -> int:
        """Of all requests together that are not yet whole."""
        return self.incomplete_messages * self.max_message_bytes
