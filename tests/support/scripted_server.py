"""A gRPC server on a real socket whose responses and failures are scripted by the test."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import numpy as np

from ghostless.v1 import prediction_pb2 as pb
from ghostless.v1 import prediction_pb2_grpc
from ghostless.v1.prediction_pb2_grpc import add_PredictionServiceServicer_to_server

LEVELS = (0.1, 0.5, 0.9)
EDGES = (0.0, 1.0, 2.0, 3.0, 4.0)


@dataclass(frozen=True)
class Failure:
    """A status that is returned instead of a prediction."""

    code: grpc.StatusCode
    details: str = "scripted"
    metadata: tuple[tuple[str, str], ...] = ()


def demo_model() -> pb.Model:
    return pb.Model(
        name="demo",
        version=3,
        versions=[
            pb.Model.Version(version=3, state=pb.Model.READY, in_service=True),
            pb.Model.Version(version=4, state=pb.Model.FAILED, message="damaged file"),
        ],
        head="cr",
        method="vbll",
        features=[
            pb.Feature(name="user_id", type=pb.Feature.INT64, role=pb.Feature.CONTEXT, vocabulary_size=100),
            pb.Feature(name="hour", type=pb.Feature.FLOAT, role=pb.Feature.CONTEXT),
            pb.Feature(name="video_id", type=pb.Feature.INT64, role=pb.Feature.CANDIDATE, vocabulary_size=500),
            pb.Feature(name="duration", type=pb.Feature.FLOAT, role=pb.Feature.CANDIDATE),
        ],
        target=pb.Target(name="watch_ratio", unit="ratio", low=0.0, high=4.0),
        outputs=[pb.OUTPUT_MEAN, pb.OUTPUT_QUANTILES, pb.OUTPUT_BINS, pb.OUTPUT_UNCERTAINTY],
        quantile_levels=LEVELS,
        edges=EDGES,
        metadata={"ghostless.head": '"cr"'},
    )


def expected_mean(request: pb.PredictRequest) -> list[float]:
    """The scripted model: a candidate's duration plus the user's id."""
    (user,) = request.context["user_id"].int64s.values
    return [duration + user for duration in request.candidates["duration"].floats.values]


def answer(request: pb.PredictRequest) -> pb.PredictResponse:
    """A response with every output of the contract; each element has a different value."""
    mean = np.array(expected_mean(request), np.float32)
    rows = len(mean)
    quantiles = mean[:, None] + np.array([-1, 0, 1], np.float32)
    bins = np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (rows, 1))
    order = np.argsort(-mean, kind="stable")[: request.top_k or None]
    response = pb.PredictResponse(
        model=request.model or "demo",
        version=request.version or 3,
        request_id=request.request_id,
        rows=rows,
        mean=mean,
        quantiles=pb.Quantiles(levels=LEVELS, values=quantiles.ravel()),
        bins=pb.Bins(edges=EDGES, probabilities=bins.ravel()),
        uncertainty=pb.Uncertainty(aleatoric=mean * 2, epistemic=mean * 3, total=mean * 5, logit_variance=mean * 7),
        categorical_uncertainty=pb.CategoricalUncertainty(
            aleatoric=mean * 11, epistemic=mean * 13, total=mean * 24, epistemic_delta=mean * 17
        ),
        exceedance=[value + threshold for value in mean for threshold in request.thresholds],
        score=mean,
        ranking=order,
        density=pb.Density(grid=[0.0, 4.0], values=np.repeat(mean, 2)),
        emg_density=pb.Density(grid=[0.0, 4.0], values=np.repeat(mean * 19, 2)),
    )
    return response


@dataclass
class ScriptedServicer(prediction_pb2_grpc.PredictionServiceServicer):
    """Uses each entry of `script` once, then answers normally. An entry is a failure, a delay in seconds or a
    function."""

    script: list[Failure | float | Callable[[], None]] = field(default_factory=list)
    requests: list[pb.PredictRequest] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def Predict(  # noqa: N802 (gRPC's name)
        self, request: pb.PredictRequest, context: grpc.ServicerContext
    ) -> pb.PredictResponse:
        with self.lock:
            self.requests.append(request)
            step = self.script.pop(0) if self.script else 0.0
        if isinstance(step, Failure):
            context.set_trailing_metadata(step.metadata)
            context.abort(step.code, step.details)
        elif callable(step):
            step()
        else:
            time.sleep(step)  # the script asks for a slow handler
        return answer(request)

    def GetModel(  # noqa: N802
        self, request: pb.GetModelRequest, context: grpc.ServicerContext
    ) -> pb.Model:
        if request.model not in ("", "demo"):
            context.abort(grpc.StatusCode.NOT_FOUND, f"model {request.model!r} is not served; available: demo")
        return demo_model()

    def ListModels(  # noqa: N802
        self, request: pb.ListModelsRequest, context: grpc.ServicerContext
    ) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=[demo_model()], default_model="demo")


@dataclass
class ScriptedServer:
    address: str
    servicer: ScriptedServicer
    server: grpc.Server

    def stop(self) -> None:
        self.server.stop(grace=0).wait()


def start(
    script: Iterable[Failure | float | Callable[[], None]] = (),
    port: int = 0,
    credentials: grpc.ServerCredentials | None = None,
) -> ScriptedServer:
    server = grpc.server(ThreadPoolExecutor(4))
    servicer = ScriptedServicer(list(script))
    add_PredictionServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]  # generated
    if credentials is None:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        bound = server.add_secure_port(f"127.0.0.1:{port}", credentials)
    server.start()
    return ScriptedServer(f"127.0.0.1:{bound}", servicer, server)


@contextmanager
def scripted_server(
    *script: Failure | float | Callable[[], None], credentials: grpc.ServerCredentials | None = None
) -> Iterator[ScriptedServer]:
    running = start(script, credentials=credentials)
    try:
        yield running
    finally:
        running.stop()
