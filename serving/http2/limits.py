"""What a server accepts from one client, and stores for it: each limit with its reason."""

from dataclasses import dataclass

from ghostless.contract import http2_frames as frames


@dataclass(frozen=True)
class Limits:
    """Of one connection, unless it says otherwise. The settings of a server come first; the others follow from how it
    is built, and need no flag."""

    # A request is held in memory until it is whole.
    max_message_bytes: int
    # Each open call holds a place in the engine's queue and its request; more are refused with REFUSED_STREAM.
    max_streams: int
    # Of all connections of a process: requests that are not whole, and answers that clients have not read. One
    # connection gets half of it. When it is full, the connection that holds the most is closed.
    client_memory_bytes: int = 64 << 20
    # A connection without a call for this long is closed; a client opens another when it has one. 0: never.
    idle_s: float = 300.0
    # Connections end some time, so that load spreads over servers that came later. Up to a tenth less, at random, so
    # that those opened together don't end together. 0: never.
    age_s: float = 3600.0

    # Frames are copied once; above this size copying larger ones saves nothing. At least 16,384 (RFC 9113, 4.2).
    max_frame_bytes: int = 1 << 20
    # Of a call's fields, as section 6.5.2 counts them; above it the call is answered with RESOURCE_EXHAUSTED.
    max_header_bytes: int = 16_384
    # A header block is decoded on the thread that serves all clients: 32 kB of Huffman codes take 4 ms. A call whose
    # headers are too large can only be answered if they are decoded, so blocks are read up to this; larger ones, or
    # blocks that decode to more, end the connection.
    max_block_bytes: int = 32_768
    # Decoded heads stored for equal blocks; a client uses a few, and one that varies them must not fill the memory.
    max_cached_heads: int = 256
    # The same in bytes of blocks and decoded fields.
    max_cached_head_bytes: int = 1 << 16
    # A client knows seven settings.
    max_settings: int = 32
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
    # Unsent pieces above which nothing more is read: an acknowledged PING has 17 bytes on the wire and some hundred in
    # memory.
    max_unsent_pieces: int = 1 << 14

    # The budget (budget.py) in frames that carry no message. A client that cancels all its calls at once needs
    # max_streams of it, and --max-streams is 1000 unless set.
    budget_frames: int = 1000
    # What a finished call gives back: clients of gRPC send up to five control frames for a call.
    refill_frames: int = 8
    # What a second gives back: enough for keepalive PINGs, and for calls that are cancelled because they expired.
    refill_frames_per_s: float = 50.0
    # A DATA frame below this size, other than the last of a request, counts as one without a message.
    small_data_bytes: int = 256
    # What a turn of one connection does before the others get theirs: frames, and 8 more for a kB of headers that has
    # to be decoded. A frame costs 2 us, a call 50 us.
    turn_work: int = 64

    # From the connection's first byte, or its acceptance, to its first SETTINGS.
    preface_s: float = 10.0
    # From the first frame of a header block to its last, and for any other frame but DATA.
    header_s: float = 10.0
    # From a call's headers to the end of its request, where that is one message.
    body_s: float = 30.0
    # For which an answer may wait for the client's windows, or bytes for its socket.
    unread_s: float = 30.0
    # Which calls under way get when a connection is too old or idle, after the client was told to leave.
    leave_s: float = 60.0
    # The same where there are none.
    leave_idle_s: float = 10.0
    # For which a connection that ended is read from, so that its client gets the GOAWAY; closed at once, the kernel
    # would answer what is still on its way with a reset, and the client would lose what it has not read.
    linger_s: float = 1.0
    # The same in bytes.
    linger_bytes: int = 1 << 20

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
