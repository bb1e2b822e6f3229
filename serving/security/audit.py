"""The audit log: one line of JSON for each admin call, allowed or refused. Who, when, from where, what."""

import json
import logging
import os
import pwd
from datetime import UTC, datetime
from pathlib import Path

from ghostless.contract.errors import ConfigError

_log = logging.getLogger(__name__)


class AuditLog:
    """Appends to `path`, which may be moved away at any time; None: lines go to the server's log alone."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is not None:
            try:
                os.close(self._open(path))
            except OSError as error:
                raise ConfigError(f"audit log {path} can't be written: {error.strerror}") from error

    def write(self, who: str, where: str, call: str, result: str, **about: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        content = {"time": now, "identity": who, "from": where, "call": call, "result": result, **about}
        line = json.dumps(content, separators=(",", ":"))
        _log.info("audit: %s", line)
        if self._path is None:
            return
        descriptor = self._open(self._path)
        try:
            os.write(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def system_user() -> str:
    """The account of this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user need not have a name
        return f"uid {os.getuid()}"
