"""A real server in this process with all telemetry, and access to its metrics."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from serving.config import ServeConfig
from serving.engines.interface import Engine
from serving.server import Server
from serving.telemetry.assemble import Observability
from serving.telemetry.record import CallRecord
from tests.support.running import Running

DEMO = {"model": "demo", "version": "1", "head": "cr"}


@dataclass
class Observed(Running):
    observability: Observability = field(kw_only=True)

    def value(self, name: str, **labels: str) -> float:
        """The value of a sample, including everything recorded so far; 0 if it does not exist."""
        self.observability.recorder.flush()
        return self.observability.metrics.registry.get_sample_value(f"ghostless_{name}", labels) or 0.0

    def requests(self, code: str, method: str = "Predict", **model: str) -> float:
        return self.value("requests_total", method=method, code=code, **(model or DEMO))


@contextmanager
def observed(engine: Engine, **settings: object) -> Iterator[Observed]:
    """Serve `engine` with telemetry until the block ends."""
    every_row = {"uncertainty_rows_per_s": 1e12}
    usual = {"host": "127.0.0.1", "port": 0, "slots": 2, "drain_s": 5.0}
    config = ServeConfig.model_validate({**usual, **every_row, **settings})
    observability = Observability(config, engine)
    server = Server(config, engine, observability=observability)
    port = server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            yield Observed(server, engine, port, channel, observability=observability)
        finally:
            server.stop()


class RecordingSink:
    """A sink that stores what it receives."""

    def __init__(self, needed: frozenset[str] = frozenset(), metadata: bool = False) -> None:
        self.needs_metadata = metadata
        self.records: list[CallRecord] = []
        self.closed = False
        self._needed = needed

    def needs_inputs(self, stored: bool, sampled: bool) -> bool:
        return False

    def needed_outputs(self, stored: bool, sampled: bool) -> frozenset[str]:
        return self._needed if stored else frozenset()

    def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
        self.records += records

    def close(self) -> None:
        self.closed = True
