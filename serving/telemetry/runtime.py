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

from serving.config import ServeConfig
from serving.heartbeat import Heartbeats, Liveness
from serving.telemetry.exposition import Exposition

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


def values_directory(directory: Path) -> Path:
    """The folder with the metric values of the processes that share `directory`."""
    return directory / "metrics"


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
            exposition = Exposition(config.metrics_host, config.exposition_port, values, liveness)
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
