"""10,000 generated requests, most of them malformed: no crash, no hang, no INTERNAL, no wrong OK, memory flat."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime as ort
import psutil
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as oip

from ghostless.v1 import prediction_pb2 as pb
from tests.support.grpc_calls import raw_method
from tests.support.onnx_models import SMALL, write_version
from tests.support.processes import served
from tests.support.running import graph_inputs, predict_request

REQUESTS = 10_000
MAX_ROWS = 50
IN_FLIGHT = 64
PREDICT = "/ghostless.v1.PredictionService/Predict"
INFER = "/inference.GRPCInferenceService/ModelInfer"
EXPECTED_CODES = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_SPECIAL = [float("nan"), float("inf"), -float("inf"), 3.4e38, -1.0, 0.0, 1.0, 0.5]
_COLUMNS = ["user_id", "hour", "item_id", "duration", "", "x" * 300, "user_id\0"]

Change = Callable[[pb.PredictRequest, np.random.Generator], object]


def _column(random: np.random.Generator) -> pb.Column:
    rows = int(random.choice([0, 1, 2, 3, 3, 3, 51]))
    match random.integers(4):
        case 0:
            return pb.Column(int64s=pb.Int64List(values=random.integers(-(2**63), 2**63 - 1, rows).tolist()))
        case 1:
            return pb.Column(floats=pb.FloatList(values=random.choice(_SPECIAL, rows).tolist()))
        case 2:
            return pb.Column(strings=pb.StringList(values=["é" * int(random.integers(5))] * rows))
    return pb.Column()


def _put(columns: Any, random: np.random.Generator) -> None:
    columns[str(random.choice(_COLUMNS))].CopyFrom(_column(random))


CHANGES: list[Change] = [
    lambda r, g: _put(r.context, g),
    lambda r, g: _put(r.candidates, g),
    lambda r, g: r.context.pop(str(g.choice(["user_id", "hour"])), None),
    lambda r, g: r.candidates.pop(str(g.choice(["item_id", "duration"])), None),
    lambda r, g: r.quantile_levels.append(float(g.choice(_SPECIAL))),
    lambda r, g: r.thresholds.append(float(g.choice(_SPECIAL))),
    lambda r, g: r.outputs.append(int(g.choice([0, 1, 2, 3, 4, 5, 6, 99, -5]))),  # type: ignore[arg-type]  # no Output
    lambda r, g: setattr(r, "version", int(g.choice([-1, 0, 1, 2, 2**62]))),
    lambda r, g: setattr(r, "model", str(g.choice(["", "demo", "nope", "../demo", "x" * 5000]))),
    lambda r, g: setattr(r.scoring.ucb, "kappa", float(g.choice(_SPECIAL))),
    lambda r, g: setattr(r.scoring.quantile, "level", float(g.choice(_SPECIAL))),
    lambda r, g: setattr(r.scoring.risk_averse, "weight", float(g.choice(_SPECIAL))),
    lambda r, g: r.scoring.SetInParent(),
    lambda r, g: setattr(r, "top_k", int(g.integers(0, 2**32))),
    lambda r, g: setattr(r, "request_id", "é" * int(g.integers(100))),
]


def _damage(message: bytes, random: np.random.Generator) -> bytes:
    """The bytes flipped, cut, doubled or replaced somewhere."""
    data = bytearray(message)
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(len(data) + 1))
        match random.integers(4):
            case 0 if at < len(data):
                data[at] ^= 1 << int(random.integers(8))
            case 1:
                del data[at : at + int(random.integers(1, 9))]
            case 2:
                data[at:at] = random.bytes(int(random.integers(1, 9)))
            case _:
                data = data[:at] + data[at // 2 :]
    return bytes(data)


def _generate(random: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    infer = oip.ModelInferRequest(model_name="demo")
    for name, values in graph_inputs(predict_request(3)).items():
        infer.inputs.add(name=name, datatype="INT64" if values.dtype == np.int64 else "FP32", shape=[3])
        infer.raw_input_contents.append(values.tobytes())
    for _ in range(REQUESTS):
        kind = random.integers(10)
        if kind == 0:
            yield INFER, _damage(infer.SerializeToString(), random)
            continue
        request = predict_request(3, seed=int(random.integers(1000)))
        for _ in range(int(random.integers(0, 4))):
            CHANGES[int(random.integers(len(CHANGES)))](request, random)
        message = request.SerializeToString()
        yield PREDICT, message if kind < 6 else _damage(message, random)


def _drop_unknown(request: pb.PredictRequest) -> None:
    for columns, known in ((request.context, {"user_id", "hour"}), (request.candidates, {"item_id", "duration"})):
        for name in set(columns) - known:
            del columns[name]


def _is_good(message: bytes) -> bool | None:
    """Whether the server ought to answer, worked out the plain way; None where only the graph's numbers can tell."""
    try:
        request = pb.PredictRequest.FromString(message)
    except DecodeError:
        return False
    _drop_unknown(request)
    context, candidates = dict(request.context), dict(request.candidates)
    if len(context) != 2 or len(candidates) != 2:
        return False
    columns = [context["hour"].floats.values, candidates["duration"].floats.values]
    ids = [context["user_id"].int64s.values, candidates["item_id"].int64s.values]
    rows = len(columns[1])
    rule = request.scoring.WhichOneof("rule")
    parameters = {
        "ucb": request.scoring.ucb.kappa,
        "risk_averse": request.scoring.risk_averse.weight,
        "acquisition": request.scoring.acquisition.gamma,
    }
    parameter = parameters.get(rule or "", 0.0)
    good = (
        [c.WhichOneof("kind") for c in (*context.values(), *candidates.values())].count("floats") == 2
        and len(ids[0]) == len(columns[0]) == 1
        and 0 < rows == len(ids[1]) <= MAX_ROWS
        and all(math.isfinite(x) for x in (*columns[0], *columns[1], *request.thresholds))
        and all(0 < level < 1 for level in request.quantile_levels)
        and len(request.quantile_levels) <= 20 >= len(request.thresholds)
        and all(1 <= output <= 5 for output in request.outputs)
        and request.version in (0, 1)
        and request.model in ("", "demo")
        and (rule is not None or not request.HasField("scoring"))
        and (rule != "quantile" or 0 < request.scoring.quantile.level < 1)
        and math.isfinite(parameter)
    )
    # A huge parameter overflows, which is refused, or not, depending on the candidates' standard deviations.
    return None if good and abs(parameter) > 1e30 else good


def test_malformed_requests(tmp_path: Path) -> None:
    file = write_version(tmp_path, 1, SMALL) / "model.onnx"
    graph = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(20240607)
    codes: Counter[grpc.StatusCode] = Counter()
    answered_well = 0

    flags = ("--max-rows", str(MAX_ROWS), "--max-levels", "20", "--deadline-ms", "0")
    with served(tmp_path, *flags) as server, grpc.insecure_channel(server.address) as channel:
        calls = {method: raw_method(channel, method) for method in (PREDICT, INFER)}
        memory = psutil.Process(server.process.pid).memory_info
        in_flight: deque[tuple[str, bytes, Any]] = deque()
        resident: list[int] = []

        def finish_one() -> None:
            nonlocal answered_well
            method, message, call = in_flight.popleft()
            code = call.code()
            codes[code] += 1
            assert code in EXPECTED_CODES, f"{code}: {call.details()} for {method} {message.hex()}"
            if method == INFER:
                return
            good = _is_good(message)
            if good is not None:
                assert (code is grpc.StatusCode.OK) == good, f"{code}: {call.details()} for {message.hex()}"
            if code is grpc.StatusCode.OK:
                answer = pb.PredictResponse.FromString(call.result())
                request = pb.PredictRequest.FromString(message)
                if answer.mean:
                    expected = graph.run(["mean"], graph_inputs(request))[0]
                    np.testing.assert_allclose(answer.mean, expected, rtol=1e-5, atol=1e-5)
                assert np.isfinite([*answer.score, *answer.exceedance, *answer.quantiles.values]).all()
                answered_well += 1

        for sent, (method, message) in enumerate(_generate(random)):
            in_flight.append((method, message, calls[method].future(message, timeout=20)))
            if len(in_flight) >= IN_FLIGHT:
                finish_one()
            if sent in (REQUESTS // 3, REQUESTS - 1):
                resident.append(memory().rss)
        while in_flight:
            finish_one()
        assert resident[1] - resident[0] < 16 * 1024 * 1024, "memory grew while nothing but bad requests came"
        assert server.stop() == 0
        assert "Traceback" not in server.output

    assert sum(codes.values()) == REQUESTS
    assert codes[grpc.StatusCode.INVALID_ARGUMENT] > REQUESTS / 3
    assert answered_well > 300, "the oracle must see good requests too"
