"""What the processes of one server share while it runs: a directory, and the port that metrics are read from.

prometheus_client decides when it is first imported where values live, so nothing may import it before this.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.config import ServeConfig

if TYPE_CHECKING:
    from serving.observability.exposition import Exposition

_VALUES = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True)
class Runtime:
    """`directory` is the server's alone, and only its user may enter it. No exposition: metrics are off."""

    directory: Path
    exposition: "Exposition | None"


@contextmanager
def runtime(config: ServeConfig) -> Iterator[Runtime]:
    """Until the block ends; then the directory is gone."""
    directory = Path(tempfile.mkdtemp(prefix="ghostless-"))
    exposition = None
    try:
        if config.metrics:
            values = directory / "metrics"
            values.mkdir()
            os.environ[_VALUES] = str(values)
            from serving.observability.exposition import Exposition

            exposition = Exposition(config.host, config.exposition_port, values)
        yield Runtime(directory, exposition)
    finally:
        if exposition is not None:
            exposition.stop()
        shutil.rmtree(directory, ignore_errors=True)
