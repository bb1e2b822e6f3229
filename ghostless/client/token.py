"""The bearer token that is sent with every call."""

import threading
import time
from pathlib import Path

from ghostless.contract.errors import ConfigError
from ghostless.contract.secret_files import Signature, read_secret, signature

# How often a token's file is looked at.
_LOOK_EVERY_S = 1.0

Metadata = tuple[tuple[str, str], ...]


class BearerToken:
    """`source`: the token itself, or the path of a file that holds it. The file is read again when it changes, so that
    a token can be rotated under a running client. Safe to share between threads."""

    def __init__(self, source: str | Path) -> None:
        self._path = source if isinstance(source, Path) else None
        self._lock = threading.Lock()
        self._seen: Signature = ()
        self._next_look = 0.0
        self._metadata: Metadata = () if isinstance(source, Path) else _metadata(source)
        self.metadata()

    def metadata(self) -> Metadata:
        """To be sent with the next call. A file that can't be read any more leaves the last token in use."""
        if self._path is None or time.monotonic() < self._next_look:
            return self._metadata
        with self._lock:
            self._next_look = time.monotonic() + _LOOK_EVERY_S
            found = signature([self._path])
            if found != self._seen:
                try:
                    self._metadata = _metadata(read_secret(self._path, "the token file").decode("utf-8", "replace"))
                except ConfigError:
                    if not self._metadata:
                        raise
                else:
                    self._seen = found
        return self._metadata


def _metadata(token: str) -> Metadata:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("the token is empty or not one printable word; `ghostless identities token` makes tokens")
    return (("authorization", f"Bearer {token}"),)
