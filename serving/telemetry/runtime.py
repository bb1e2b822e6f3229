"""Resources shared by the processes of one server: a directory and the metrics port."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from serving.config import ServeConfig
from serving.telemetry.exposition import Exposition


@dataclass(frozen=True)
class Runtime:
    """`directory` belongs to this server, and only its user can access it. `exposition` is None if metrics are off."""

    directory: Path
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
    """Create the directory and the metrics port; both are removed when the block ends."""
    directory = Path(tempfile.mkdtemp(prefix="ghostless-"))
    exposition = None
    try:
        if config.metrics:
            values = values_directory(directory)
            values.mkdir()
            exposition = Exposition(config.metrics_host, config.exposition_port, values)
        yield Runtime(directory, exposition)
    finally:
        if exposition is not None:
            exposition.stop()
        shutil.rmtree(directory, ignore_errors=True)
