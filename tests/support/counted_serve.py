"""`serve` that counts the requests of each worker: `python -m tests.support.counted_serve serve ...`.

Each worker appends a byte per request to a file named after its process id, in the folder COUNTS.
"""

import os
from pathlib import Path
from typing import Any, cast

import typer

from serving import cli
from serving.config import load_config
from serving.engines.interface import Engine, Job

COUNTS = "GHOSTLESS_TEST_COUNTS"


class CountedEngine:
    """Counts the jobs that are submitted to an engine and passes everything on to it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._count = Path(os.environ[COUNTS], str(os.getpid())).open("ab", buffering=0)  # noqa: SIM115

    def submit(self, job: Job) -> None:
        self._count.write(b".")
        self._engine.submit(job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def counted(engine: Engine) -> Engine:
    return cast(Engine, CountedEngine(engine))


def serve(**flags: Any) -> None:
    cli.run(load_config({name: value for name, value in flags.items() if value is not None}), counted)


def answered(folder: Path) -> list[int]:
    """Number of requests that each worker has answered so far."""
    return [file.stat().st_size for file in folder.iterdir()]


if __name__ == "__main__":
    serve.__signature__ = cli.serve.__signature__  # type: ignore[attr-defined]
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command()(serve)
    app()
