"""Protocol errors of a client.

ProtocolFault
    ConnectionFault        the whole connection ends, with a GOAWAY that says why (RFC 9113, section 5.4.1)
    StreamFault            one call ends, with a RST_STREAM (RFC 9113, section 5.4.2)
"""

from ghostless.contract import http2_frames as frames


class ProtocolFault(Exception):  # noqa: N818  # the names say what they are
    def __init__(self, why: str, code: int = frames.PROTOCOL_ERROR) -> None:
        super().__init__(why)
        self.code = code


class ConnectionFault(ProtocolFault):
    pass


class StreamFault(ProtocolFault):
    pass
