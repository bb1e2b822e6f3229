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
    from serving.console.relay import Relay
    from serving.security.tls_files import TlsFiles

_log = logging.getLogger(__name__)

_PREFIX = "ghostless-"
_LOCK = "lock"


@dataclass(frozen=True)
class Runtime:
    """`directory` belongs to this server, and only its user can access it. `exposition` is None if metrics are off."""

    directory: Path
    heartbeats: Heartbeats
    exposition: Exposition | None = None

    @contextmanager
    def forking(self) -> Iterator[None]:
        """Block scrapes while a worker is forked, so that it inherits no lock that is held."""
        with self.exposition.lock if self.exposition else nullcontext():
            yield

    def forked(self) -> None:
        """Call this in the worker after the fork."""
        if self.exposition:
            self.exposition.forked()

    def ended(self, pid: int | None) -> None:
        """Call this after a worker has ended."""
        if self.exposition and pid:
            self.exposition.remove_process(pid)


def workers_socket(directory: Path) -> Path:
    """The Unix socket on which the workers also accept calls, for the console's process alone: the directory is
    private."""
    return directory / "workers.sock"


def values_directory(directory: Path) -> Path:
    """The folder with the metric values of the processes that share `directory`."""
    return directory / "metrics"


def _tls(config: ServeConfig) -> "TlsFiles | None":
    if config.metrics_tls_paths is None:
        return None
    from serving.security.tls_files import TlsFiles

    return TlsFiles(config.metrics_tls_paths, ("http/1.1",))


def _relay(config: ServeConfig, directory: Path) -> "Relay":
    from serving.console.relay import Relay
    from serving.console.settings import console_settings

    return Relay(console_settings(config, directory))


@contextmanager
def runtime(config: ServeConfig) -> Iterator[Runtime]:
    """Create the directory and the metrics port; both are removed when the block ends. Also removes directories that
    killed servers left behind."""
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
            relay = _relay(config, directory) if config.has_http else None
            exposition = Exposition(
                config.exposition_host, config.exposition_port, values, liveness, _tls(config), relay
            )
        yield Runtime(directory, heartbeats, exposition)
    finally:
        if exposition is not None:
            exposition.stop()
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _lock(directory: Path) -> int:
    """A lock that the server and its workers, which inherit it, hold until the last of them has ended."""
    unnamed = directory / f"{_LOCK}.new"
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # Renamed only once it is locked, so that another server never finds it unlocked.
    unnamed.rename(directory / _LOCK)
    return descriptor


def _remove_abandoned() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if directory.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # not a server's directory, or being created or removed
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # in use
        else:
            shutil.rmtree(directory, ignore_errors=True)
            _log.debug("removed %s, left behind by a server that was killed", directory)
        finally:
            os.close(descriptor)
