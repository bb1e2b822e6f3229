"""Resources shared by the processes of one server: a directory and the metrics port."""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.config import ServeConfig
from serving.heartbeat import Heartbeats, Liveness
from serving.telemetry.exposition import Exposition

if TYPE_CHECKING:
    from serving.security.tls_files import TlsFiles

_log = logging.getLogger(__name__)

_PREFIX = "ghostless-"
_LOCK = "lock"


@dataclass(frozen=True)
class Runtime:
    """`directory` is the server's alone, and only its user may enter it. No exposition: metrics are off."""

    directory: Path
    heartbeats: Heartbeats
    exposition: Exposition | None = None

    @contextmanager
    def forking(self) -> Iterator[None]:
        """While a worker is forked nobody reads metrics, so that it inherits no lock that a thread holds."""
        with self.exposition.lock if self.exposition else nullcontext():
            yield

    def forked(self) -> None:
        """In the worker."""
        if self.exposition:
            self.exposition.forked()

    def ended(self, pid: int | None) -> None:
        """A worker is gone."""
        if self.exposition and pid:
            self.exposition.remove_process(pid)


def values_directory(directory: Path) -> Path:
    """Where the processes that share `directory` keep their metrics' values."""
    return directory / "metrics"


def _tls(config: ServeConfig) -> "TlsFiles | None":
    if config.metrics_tls_paths is None:
        return None
    from serving.security.tls_files import TlsFiles

    return TlsFiles(config.metrics_tls_paths, ("http/1.1",))


@contextmanager
def runtime(config: ServeConfig) -> Iterator[Runtime]:
    """Until the block ends; then the directory is gone. So are those that killed servers left behind."""
    _remove_abandoned()
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    heartbeats = Heartbeats(config.worker_count)
    exposition = None
    lock = _lock(directory)
    try:
        if config.metrics:
            values = values_directory(directory)
            values.mkdir()
            liveness = Liveness(heartbeats, config.worker_count)
            exposition = Exposition(config.exposition_host, config.exposition_port, values, liveness, _tls(config))
        yield Runtime(directory, heartbeats, exposition)
    finally:
        if exposition is not None:
            exposition.stop()
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _lock(directory: Path) -> int:
    """Held by the server and its workers, which inherit it, until the last of them is gone."""
    unnamed = directory / f"{_LOCK}.new"
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # It gets its name when it is held, so that another server never finds it free.
    unnamed.rename(directory / _LOCK)
    return descriptor


def _remove_abandoned() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if directory.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # not a server's, or just being made or removed
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # in use
        else:
            shutil.rmtree(directory, ignore_errors=True)
            _log.debug("removed %s, which a server that was killed had left behind", directory)
        finally:
            os.close(descriptor)
