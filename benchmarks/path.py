"""`ghostless bench path`: the number of source files that one request passes through.

A server in this process, with default settings and metrics on, answers a Predict of 256 rows. The thread that reads,
runs and answers it is profiled, and every non-generated file of the project with a frame on that thread is counted. The
recorder's background thread is not part of the request.
"""

import inspect
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import grpc
import typer

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from ghostless.client.calls import predict_call
from loadtest.figures import Figures
from loadtest.workload import ServedModel
from serving.config import ServeConfig
from serving.dataplane.facade import PREDICT
from serving.dataplane.pipeline import Pipeline
from serving.server import Server, embedded_engine
from serving.telemetry.assemble import Observability

ROWS = 256
MOST_FILES = 20
_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("serving", "ghostless")
_GENERATED = "ghostless/v1/"
_TIMEOUT_S = 10.0
# The first calls of a connection fill its header table and the server's caches.
_WARM_UP_CALLS = 50


class FileProfile:
    """Files with a frame, by thread, while `is_recording`; only for threads that start inside the block."""

    def __init__(self) -> None:
        self.is_recording = False
        self.by_thread: dict[int, set[str]] = {}

    def __enter__(self) -> "FileProfile":
        threading.setprofile(self._take)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)

    def _take(self, frame: FrameType, event: str, argument: object) -> None:
        # Any event counts, so that frames entered earlier are found too.
        if self.is_recording:
            self.by_thread.setdefault(threading.get_ident(), set()).add(frame.f_code.co_filename)


def files_of_one_request(model: ServedModel, repository: Path, rows: int = ROWS) -> list[str]:
    """Sorted paths relative to the root of the checkout."""
    config = ServeConfig(repository=repository, host="127.0.0.1", port=0, slots=1, workers=1, default_model=model.name)
    request = predict_call(model.rows(rows, seed=0).arguments(model.name)).request
    engine = embedded_engine(config)
    try:
        with FileProfile() as profile:
            server = Server(config, engine, observability=Observability(config, engine))
            port = server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            predict: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PREDICT)
            for call in range(_WARM_UP_CALLS + 1):
                profile.is_recording = call == _WARM_UP_CALLS
                predict(request, timeout=_TIMEOUT_S)
            profile.is_recording = False
        server.stop()
    finally:
        engine.stop()
    # The other threads are the recorder and watchers, which may run at the same time.
    (seen,) = (files for files in profile.by_thread.values() if inspect.getfile(Pipeline) in files)
    return sorted(path for path in map(_path_in_project, seen) if path)


def _path_in_project(file: str) -> str:
    """The path inside the project; empty for files of other packages and generated files."""
    path = Path(file)
    if not path.is_relative_to(_ROOT):
        return ""
    inside = path.relative_to(_ROOT)
    return "" if inside.parts[0] not in _PACKAGES or str(inside).startswith(_GENERATED) else str(inside)


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    repository: Annotated[Path, typer.Option(help="Model repository to serve.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
) -> None:
    """Count the project's source files that one Predict of 256 rows executes, from a profile of the serving thread."""
    figures = Figures("ghostless bench path")
    files = files_of_one_request(find_or_make_model(repository, model, figures.console), repository)
    for path in files:
        figures.console.print(path)
    figures.add(f"files with a frame, one Predict of {ROWS} rows", len(files), f"<= {MOST_FILES}")
    figures.finish(json_path)
