"""Files with keys and tokens: read with their mode checked, and watched for changes."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ghostless.contract.errors import ConfigError

# Nobody else may read a secret, and only its owner may replace it. The group may read: Kubernetes gives a pod's secrets
# to the group of its user.
_FORBIDDEN = stat.S_IWGRP | stat.S_IRWXO

# Inode, size and time of change of each file; None where there is none.
Signature = tuple[tuple[int, int, int] | None, ...]


def read_secret(path: Path, what: str) -> bytes:
    """ConfigError if others may read it or the group may write it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & _FORBIDDEN:
                raise ConfigError(
                    f"{what} {path} has mode {mode:04o}: others can read it or its group can write it; chmod 600 {path}"
                )
            return file.read()
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror}") from error


def write_secret(path: Path, content: bytes) -> None:
    """Replaced as a whole, and readable by its owner alone from the start."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)


def signature(paths: Iterable[Path]) -> Signature:
    """Differs after any of the files was replaced or written to."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
