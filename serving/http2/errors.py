"""What a peer can do wrong.

ConnectionFault            the whole connection ends, with a GOAWAY that says why
"""

from ghostless.contract import http2_frames as frames


class ConnectionFault(Exception):  # noqa: N818  # the name says what it is
    def __init__(self, why: str, code: int = frames.PROTOCOL_ERROR) -> None:
        super().__init__(why)
        self.code = code
