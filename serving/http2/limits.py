"""Limits on what a server accepts from a client and stores for it, each with its reason."""

from dataclasses import dataclass

from ghostless.contract import http2_frames as frames


@dataclass(frozen=True)
class Limits:
    """Limits per connection, unless stated otherwise. The first ones are settings of the server; the others follow from
    its design and have no flag."""

    # A request stays in memory until it is complete.
    max_message_bytes: int
    # Each open call uses memory and a place in the engine's queue; further calls are rejected with REFUSED_STREAM.
    max_streams: int
    # Memory for all connections of a process: incomplete requests, and responses that clients have not read. One
    # connection may use half of it. When it is full, the connection that uses the most is closed.
    client_memory_bytes: int = 64 << 20
    # A connection without a call for this long is closed; the client opens a new one for its next call. 0 means never.
    idle_s: float = 300.0
    # Maximum age of a connection, so that load spreads to servers that were added later. Reduced by up to a tenth at
    # random, so that connections opened together don't end together. 0 means never.
    age_s: float = 3600.0

    # Frames are copied once; larger frames would save nothing. At least 16,384 (RFC 9113, 4.2).
    max_frame_bytes: int = 1 << 20
    # Size of a call's header fields as defined by section 6.5.2; larger ones fail with RESOURCE_EXHAUSTED.
    max_header_bytes: int = 16_384
    # A header block is decoded on the thread that serves all clients: 32 kB of Huffman codes take 4 ms. A call with too
    # large headers can only be answered if they are decoded, so blocks are decoded up to this size; larger blocks, or
    # blocks that decode to more, end the connection.
    max_block_bytes: int = 32_768
    # Maximum number of cached decoded heads. A client uses a few; one that varies them must not fill the memory.
    max_cached_heads: int = 256
    # The same in bytes of blocks and decoded fields: about 15 heads of gRPC clients.
    max_cached_head_bytes: int = 1 << 15
    # Maximum number of settings in a frame; HTTP/2 clients use about seven.
    max_settings: int = 32
    # Memory for incomplete requests of one connection, in units of the maximum message size.
    incomplete_messages: int = 4
    # The connection's window is reopened after this many bytes: often enough never to block, rarely enough to cost
    # nothing.
    window_step: int = 1 << 22
    # Pieces of a streamed response that may wait for the client's window; with more, the call is reset.
    max_held_back_pieces: int = 256
    # Number of streams reset by the server whose late frames are discarded, because the client may not know of the
    # reset yet. A frame that arrives after as many other resets ends the connection.
    max_remembered_resets: int = 1024
    # Stream numbers that a client skipped are closed; this many gaps are distinguished from streams that were used.
    max_remembered_gaps: int = 64
    # Number of unsent pieces above which reading stops: an acknowledged PING has 17 bytes on the wire and a few hundred
    # in memory.
    max_unsent_pieces: int = 1 << 14

    # The budget (budget.py) in frames that carry no message. A client that cancels all its calls at once needs
    # max_streams of it; --max-streams is 1000 by default.
    budget_frames: int = 1000
    # Refill per finished call: gRPC clients send up to five control frames per call.
    refill_frames: int = 8
    # Refill per second: enough for keepalive PINGs, and for calls that are cancelled because they expired.
    refill_frames_per_s: float = 50.0
    # Calls per second that may fail because of their requests, and as many at once. Such a call takes 20 us.
    faulty_calls_per_s: int = 4000
    # A DATA frame below this size, except the last of a request, counts as a frame without a message.
    small_data_bytes: int = 256
    # Work that one connection may do before the others get their turn: one unit per frame, and for headers to be
    # decoded 2, 8 per kB and 1 per 8 fields. A frame takes 2 us, a call 50 us.
    turn_work: int = 64

    # Maximum time from the connection's first byte, or its acceptance, to its first SETTINGS.
    preface_s: float = 10.0
    # Maximum time from the first frame of a header block to its last, and for any other frame except DATA.
    header_s: float = 10.0
    # Maximum time from a call's headers to the end of its request, if the request is one message.
    body_s: float = 30.0
    # Maximum time that a response may wait for the client's windows, or bytes for its socket.
    unread_s: float = 30.0
    # Time for calls in progress on a connection that is too old or idle, after the client was asked to close it.
    leave_s: float = 60.0
    # The same if there are no calls.
    leave_idle_s: float = 10.0
    # Time during which an ended connection is still read from, so that the client receives the GOAWAY. If it were
    # closed immediately, the kernel would answer bytes in transit with a reset, and the client would lose what it has
    # not read.
    linger_s: float = 1.0
    # The same in bytes.
    linger_bytes: int = 1 << 20

    @property
    def stream_window(self) -> int:
        """The size of a whole message, so that no message waits for its stream's window."""
        return min(frames.LARGEST_WINDOW, self.max_message_bytes + (1 << 16))

    @property
    def connection_window(self) -> int:
        """So large that no call waits because another used the connection's window."""
        return min(frames.LARGEST_WINDOW, max(self.incomplete_bytes, 4 * self.window_step))

    @property
    def incomplete_bytes(self) -> int:
        """Maximum size of all incomplete requests together."""
        return self.incomplete_messages * self.max_message_bytes
