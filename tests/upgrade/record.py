"""Record what a checkout's server answers, as files that later servers are held against.

    python -m tests.upgrade.record CHECKOUT REPOSITORY OUT.tar.xz

One request at a time on an idle server, so none is merged with another. OUT holds MODEL/CASE.request and
MODEL/CASE.response, the messages' bytes as they went over the wire, and machine.json.
"""

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import onnxruntime
from tritonclient.grpc import service_pb2 as oip

from benchmarks.interleave.checkouts import other_checkout
from ghostless.client.calls import predict_call
from ghostless.contract.metadata import ModelMetadata
from ghostless.contract.repository import scan
from ghostless.v1 import prediction_pb2 as pb
from loadtest.server_process import running_server
from loadtest.workload import Rows, ServedModel, find_model

PREDICT = "/ghostless.v1.PredictionService/Predict"
MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
_TYPES = {"int64": "INT64", "float32": "FP32"}
# What ONNX Runtime chooses its kernels by; other kernels round differently.
_CPU_FLAGS = {"avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni", "amx_tile"}


def method_of(case: str) -> str:
    return MODEL_INFER if case.startswith("infer") else PREDICT


def machine() -> dict[str, object]:
    """What must be the same for answers to be equal to the last bit."""
    flags: set[str] = set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            flags |= set(line.partition(":")[2].split())
    return {
        "onnxruntime": onnxruntime.__version__,
        "numpy": np.__version__.split(".")[0],
        "cpu": sorted(flags & _CPU_FLAGS),
    }


def requests(model: ServedModel) -> Iterator[tuple[str, bytes]]:
    """Cases of Predict and ModelInfer, by name."""
    described = ModelMetadata.parse(model.session.get_modelmeta().custom_metadata_map, str(model.path))
    low, high = described.target.low, described.target.high
    middle = 0.5 * (low + high)
    for rows in (1, 300):
        yield f"all-outputs-{rows}", _predict(model, rows)
        levels = [0.013, 0.33, 0.5, 0.987]
        yield f"other-levels-{rows}", _predict(model, rows, outputs=[pb.OUTPUT_QUANTILES], quantile_levels=levels)
        thresholds = [low - 1, low, low + 0.3 * (middle - low), middle, high, high + 1]
        yield f"thresholds-{rows}", _predict(model, rows, outputs=[pb.OUTPUT_MEAN], thresholds=thresholds)
        yield f"infer-typed-{rows}", _infer(model, rows, raw=False)
        yield f"infer-raw-{rows}", _infer(model, rows, raw=True)
    for name, scoring in _scorings().items():
        yield f"score-{name}", _predict(model, 17, outputs=[pb.OUTPUT_MEAN], scoring=scoring)
    ucb = pb.Scoring(ucb=pb.Scoring.Ucb(kappa=2.0))
    yield "top-k", _predict(model, 300, outputs=[pb.OUTPUT_MEAN], scoring=ucb, top_k=10)
    yield "named", _predict(model, 3, version=1, request_id="request 7")
    outputs = [pb.OUTPUT_MEAN, pb.OUTPUT_QUANTILES, pb.OUTPUT_BINS, pb.OUTPUT_UNCERTAINTY]
    if described.head == "cr":
        outputs.append(pb.OUTPUT_CATEGORICAL_UNCERTAINTY)
    for output in outputs:
        yield f"only-{pb.Output.Name(output).lower()}", _predict(model, 3, outputs=[output])
    unknown = pb.PredictRequest.FromString(_predict(model, 9))
    for feature in model.features:
        if feature.vocabulary:
            columns = unknown.context if feature.role == "context" else unknown.candidates
            ids = columns[feature.name].int64s.values
            # One in the middle stays known.
            ids[:] = [id_ if place == 4 else 10**12 + place for place, id_ in enumerate(ids)]
    yield "unknown-ids", unknown.SerializeToString(deterministic=True)


def _scorings() -> dict[str, pb.Scoring]:
    averse = pb.Scoring.RiskAverse()
    # By number: the field's name is not part of the wire format.
    setattr(averse, averse.DESCRIPTOR.fields_by_number[1].name, 0.5)
    return {
        "mean": pb.Scoring(mean=pb.Scoring.Mean()),
        "quantile": pb.Scoring(quantile=pb.Scoring.Quantile(level=0.7)),
        "ucb": pb.Scoring(ucb=pb.Scoring.Ucb(kappa=1.5)),
        "thompson": pb.Scoring(thompson=pb.Scoring.Thompson(seed=7)),
        "acquisition": pb.Scoring(acquisition=pb.Scoring.Acquisition(gamma=0.3)),
        "risk-averse": pb.Scoring(risk_averse=averse),
    }


def _rows(model: ServedModel, count: int) -> Rows:
    """Known and unknown ids, and durations as in training: answers that differ from row to row."""
    random = np.random.default_rng(count)
    drawn = model.rows(count, seed=count)
    for feature in model.features:
        columns = drawn.context if feature.role == "context" else drawn.candidates
        size = len(columns[feature.name])
        if feature.vocabulary:
            columns[feature.name] = random.integers(0, feature.vocabulary, size)
        else:
            columns[feature.name] = np.exp(random.uniform(8.0, 12.0, size)).astype(np.float32)
    return drawn


def _predict(model: ServedModel, rows: int, **fields: object) -> bytes:
    request = pb.PredictRequest.FromString(predict_call(_rows(model, rows).arguments(model.name)).request)
    request.MergeFrom(pb.PredictRequest(**fields))  # type: ignore[arg-type]  # whatever the case sets
    return request.SerializeToString(deterministic=True)


def _infer(model: ServedModel, rows: int, raw: bool) -> bytes:
    request = oip.ModelInferRequest(model_name=model.name, id="infer")
    for name, values in _rows(model, rows).feeds().items():
        kind = str(values.dtype)
        tensor = request.inputs.add(name=name, datatype=_TYPES[kind], shape=[rows])
        if raw:
            request.raw_input_contents.append(values.tobytes())
        elif kind == "int64":
            tensor.contents.int64_contents.extend(values.tolist())
        else:
            tensor.contents.fp32_contents.extend(values.tolist())
    answered: bytes = request.SerializeToString(deterministic=True)
    return answered


def call(channel: grpc.Channel, case: str, request: bytes) -> bytes:
    send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method_of(case))
    return send(request, timeout=30.0)


def main(checkout: Path, repository: Path, out: Path) -> None:
    files = {"machine.json": json.dumps(machine()).encode()}
    with (
        running_server(repository, program=other_checkout(checkout).program) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        for name in scan(repository):
            for case, request in requests(find_model(repository, name)):
                files[f"{name}/{case}.request"] = request
                files[f"{name}/{case}.response"] = call(channel, case, request)
    with tarfile.open(out, "w:xz") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    print(f"{out}: {len(files) // 2} answers, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:4]))
