"""A real server in this process on a free port, and engines for it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Tensors
from ghostless.v1 import prediction_pb2 as pb
from ghostless.v1 import prediction_pb2_grpc as pb_grpc
from serving.config import ServeConfig
from serving.engines.batcher import BatchLimits, RowBatcher
from serving.engines.interface import (
    Engine,
    EngineStatistics,
    Job,
    ModelStatus,
    ModelVersion,
    VersionState,
    VersionStatus,
)
from serving.errors import NotFoundError, OverloadedError
from serving.server import Server, embedded_engine
from tests.support.grpc_calls import stub_on
from tests.support.onnx_models import CR_OUTPUTS, SMALL, Recipe, metadata_of


@dataclass
class Running:
    server: Server
    engine: Engine
    port: int
    channel: grpc.Channel
    root: Path | None = None

    @property
    def stub(self) -> pb_grpc.PredictionServiceStub:
        return stub_on(self.channel)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def serving(engine: Engine, **settings: object) -> Iterator[Running]:
    """Serve `engine` until the block ends."""
    config = ServeConfig.model_validate({"host": "127.0.0.1", "port": 0, "slots": 2, "drain_s": 5.0, **settings})
    server = Server(config, engine)
    port = server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            yield Running(server, engine, port, channel)
        finally:
            server.stop()


@contextmanager
def serving_repository(root: Path, **settings: object) -> Iterator[Running]:
    """Serve the repository at `root` on the embedded engine."""
    config = ServeConfig.model_validate({"repository": root, "slots": 2, "poll_s": 0.05, **settings})
    engine = embedded_engine(config)
    try:
        with serving(engine, **settings) as running:
            running.root = root
            yield running
    finally:
        engine.stop()


class FakeEngine:
    """Has one model "demo" whose outputs all equal the `duration` column. Runs are counted and can be delayed."""

    def __init__(self, limits: BatchLimits, recipe: Recipe = SMALL, outputs: tuple[str, ...] = CR_OUTPUTS) -> None:
        self.model = ModelVersion("demo", 1, metadata_of(recipe), outputs, {})
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Semaphore(0)
        self.runs: list[list[float]] = []
        self.poison = 0.0
        self.batcher = RowBatcher(self._run, limits)

    def _run(self, model: ModelVersion, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
        self.started.release()
        assert self.gate.wait(10)
        values = inputs["duration"]
        self.runs.append(values.tolist())
        widths = model.metadata.widths()
        return {
            name: (values[:, None] * np.ones(widths[name], np.float32) if name in widths else values) + self.poison
            for name in outputs
        }

    def resolve(self, model: str, version: int) -> ModelVersion:
        if model not in ("", "demo"):
            raise NotFoundError(f"no model {model!r}")
        return self.model

    def submit(self, job: Job) -> None:
        self.batcher.submit(job)

    def check_overload(self) -> OverloadedError | None:
        return self.batcher.check_overload()

    def run_queued(self) -> float | None:
        return self.batcher.run_queued()

    def cancel(self, job: Job) -> None:
        self.batcher.cancel(job)

    def models(self) -> Sequence[ModelStatus]:
        return [ModelStatus("demo", (VersionStatus(1, VersionState.READY, True),), self.model)]

    def default_model(self) -> str:
        return "demo"

    def is_ready(self) -> bool:
        return True

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(self.batcher.queued_rows)


def predict_request(rows: int = 3, seed: int = 0, **fields: object) -> pb.PredictRequest:
    """A valid request for a model with SMALL's features."""
    random = np.random.default_rng(seed)
    request = pb.PredictRequest(**fields)  # type: ignore[arg-type]  # whatever the caller sets
    request.context["user_id"].int64s.values.append(int(random.integers(60)))
    request.context["hour"].floats.values.append(float(random.uniform(0, 24)))
    request.candidates["item_id"].int64s.values.extend(random.integers(0, 250, rows).tolist())
    request.candidates["duration"].floats.values.extend(random.uniform(0, 30, rows).tolist())
    return request


def graph_inputs(request: pb.PredictRequest) -> dict[str, np.ndarray]:
    """The graph's inputs for `request`, computed in the most direct way."""
    rows = len(request.candidates["duration"].floats.values)
    return {
        "user_id": np.repeat(np.array(request.context["user_id"].int64s.values, np.int64), rows),
        "hour": np.repeat(np.array(request.context["hour"].floats.values, np.float32), rows),
        "item_id": np.array(request.candidates["item_id"].int64s.values, np.int64),
        "duration": np.array(request.candidates["duration"].floats.values, np.float32),
    }


def response_tensors(response: pb.PredictResponse) -> dict[str, np.ndarray]:
    """The response by the graph's output names."""
    rows = response.rows
    flat = {
        metadata.MEAN: response.mean,
        metadata.QUANTILES: response.quantiles.values,
        metadata.BINS: response.bins.probabilities,
        metadata.ATOMS: response.atoms.probabilities,
        metadata.ALEATORIC: response.uncertainty.aleatoric,
        metadata.EPISTEMIC: response.uncertainty.epistemic,
        metadata.EPISTEMIC_CANDIDATE: response.uncertainty.epistemic_candidate,
        metadata.EPISTEMIC_LAST_LAYER: response.uncertainty.epistemic_last_layer,
        metadata.LOGIT_VARIANCE: response.uncertainty.logit_variance,
        metadata.CATEGORICAL_ALEATORIC: response.categorical_uncertainty.aleatoric,
        metadata.CATEGORICAL_EPISTEMIC: response.categorical_uncertainty.epistemic,
        metadata.CATEGORICAL_EPISTEMIC_DELTA: response.categorical_uncertainty.epistemic_delta,
        metadata.DENSITY: response.density.values,
        metadata.EMG_DENSITY: response.emg_density.values,
    }
    arrays = {name: np.array(values, np.float32) for name, values in flat.items() if len(values)}
    return {name: a if a.size == rows else a.reshape(rows, -1) for name, a in arrays.items()}
