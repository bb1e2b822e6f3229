"""Resources shared by the processes of one server: a directory and the metrics port."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.config import ServeConfig
from serving.telemetry.exposition import Exposition

if TYPE_CHECKING:
    from serving.security.tls_files import TlsFiles


@dataclass(frozen=True)
class Runtime:
    """`directory` is the server's alone, and only its user may enter it. No exposition: metrics are off."""

    directory: Path
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
    """Until the block ends; then the directory is gone."""
    directory = Path(tempfile.mkdtemp(prefix="ghostless-"))
    exposition = None
    try:
        if config.metrics:
            values = values_directory(directory)
            values.mkdir()
            exposition = Exposition(config.exposition_host, config.exposition_port, values, _tls(config))
        yield Runtime(directory, exposition)
    finally:
        if exposition is not None:
            exposition.stop()
        shutil.rmtree(directory, ignore_errors=True)
