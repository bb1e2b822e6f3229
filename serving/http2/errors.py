"""Protocol errors of a client.

ProtocolFault
    ConnectionFault        the whole connection ends, with a GOAWAY that says why (RFC 9113, section 5.4.1)
    StreamFault            one call ends, with a RST_STREAM (RFC 9113, section 5.4.2)
"""

from enum import StrEnum

from ghostless.contract import http2_frames as frames


class Closing(StrEnum):
    """Why a connection ended: the label `reason` of ghostless_connections_closed_total."""

    CLIENT = "client"  # the client closed the connection or disappeared
    PROTOCOL = "protocol"  # the client violated HTTP/2
    NOT_HTTP2 = "not_http2"
    HEADERS = "headers"  # a header block was far too large
    FLOOD = "flood"  # the client spent its budget (budget.py)
    PREFACE_DEADLINE = "preface_deadline"
    HEADER_DEADLINE = "header_deadline"
    UNREAD = "unread"  # the client does not read its responses
    MEMORY = "memory"  # it used the most memory when the memory for clients was full
    HANDSHAKE = "handshake"  # the TLS handshake failed
    HANDSHAKE_DEADLINE = "handshake_deadline"
    DISTRUSTED = "distrusted"  # the client's certificate expired or was revoked
    IDLE = "idle"
    AGE = "age"
    TOO_MANY = "too_many"  # more connections than --max-connections
    TOO_MANY_OF_PEER = "too_many_of_peer"  # more than --max-connections-per-peer from its address
    TOO_FREQUENT = "too_frequent"  # its address opens connections too often
    BAD_PEER = "bad_peer"  # many recent connections from its address were closed for misbehaviour
    SHUTDOWN = "shutdown"
    SERVER_ERROR = "server_error"


# Reasons for which well-behaved clients are disconnected.
ORDINARY = frozenset((Closing.CLIENT, Closing.IDLE, Closing.AGE, Closing.SHUTDOWN))
# Reasons for which well-behaved clients are hardly ever disconnected. (A load balancer that probes the port may not
# speak HTTP/2.)
MISBEHAVIOUR = frozenset(
    (Closing.PROTOCOL, Closing.HEADERS, Closing.FLOOD, Closing.HEADER_DEADLINE, Closing.UNREAD, Closing.MEMORY)
)


class ProtocolFault(Exception):  # noqa: N818  # the names say what they are
    def __init__(self, why: str, code: int = frames.PROTOCOL_ERROR) -> None:
        super().__init__(why)
        self.code = code


class ConnectionFault(ProtocolFault):
    def __init__(
        self, why: str, code: int = frames.PROTOCOL_ERROR, reason: Closing = Closing.PROTOCOL, answer: bytes = b""
    ) -> None:
        """`answer` is sent instead of GOAWAY to a client that does not speak HTTP/2."""
        super().__init__(why, code)
        self.reason = reason
        self.answer = answer


class StreamFault(ProtocolFault):
    pass
