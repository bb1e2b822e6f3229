"""Each thing that can be wrong with a request, over a real socket: the code, and a message that helps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import grpc
import pytest

from ghostless.v1 import prediction_pb2 as pb
from tests.support.grpc_calls import raw_method
from tests.support.onnx_models import Recipe, write_version
from tests.support.running import Running, predict_request, serving_repository


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("repository")
    write_version(root, 1)
    write_version(root, 1, Recipe(outputs=("mean", "epistemic", "quantiles")), "few")
    with serving_repository(root, default_model="demo", max_rows=500, max_levels=20) as server:
        yield server


Change = Callable[[pb.PredictRequest], object]
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


def _extend(column: pb.Column, values: list[float]) -> None:
    column.floats.values.extend(values)


def _hour_per_candidate(request: pb.PredictRequest) -> None:
    _extend(request.candidates["hour"], [1, 2, 3])
    request.context.pop("hour")


def _without_rows(request: pb.PredictRequest) -> None:
    request.CopyFrom(predict_request(0))
    request.candidates["item_id"].int64s.SetInParent()
    request.candidates["duration"].floats.SetInParent()


def _to_few(change: Change) -> Change:
    """`change`, in a request to the model with few outputs."""

    def both(request: pb.PredictRequest) -> None:
        request.model = "few"
        change(request)

    return both


CASES: dict[str, tuple[Change, grpc.StatusCode, str]] = {
    "unknown model": (lambda r: setattr(r, "model", "nope"), NOT_FOUND, "no model 'nope'; available: demo"),
    "unknown version": (lambda r: setattr(r, "version", 9), NOT_FOUND, "no version 9 loaded; available: 1"),
    "negative version": (lambda r: setattr(r, "version", -1), INVALID, "version is -1"),
    "missing candidate": (lambda r: r.candidates.pop("item_id"), INVALID, "'item_id' (int64) is missing"),
    "missing context": (lambda r: r.context.pop("hour"), INVALID, "'hour' (float32) is missing from `context`"),
    "in the wrong place": (
        _hour_per_candidate,
        INVALID,
        "it was sent in `candidates`, send it in `context`",
    ),
    "wrong type": (
        lambda r: r.candidates["item_id"].CopyFrom(pb.Column(floats=pb.FloatList(values=[1, 2, 3]))),
        INVALID,
        "feature 'item_id' is int64: send it as int64s, it was sent as floats",
    ),
    "no values at all": (
        lambda r: r.candidates["item_id"].CopyFrom(pb.Column()),
        INVALID,
        "feature 'item_id' is int64: send it as int64s, it was sent without values",
    ),
    "unequal length": (
        lambda r: r.candidates["item_id"].int64s.values.append(4),
        INVALID,
        "equal length, got duration: 3, item_id: 4",
    ),
    "context of two rows": (
        lambda r: r.context["user_id"].int64s.values.append(4),
        INVALID,
        "'user_id' must have exactly 1 row, got 2",
    ),
    "empty context column": (
        lambda r: r.context["user_id"].CopyFrom(pb.Column(int64s=pb.Int64List())),
        INVALID,
        "'user_id' must have exactly 1 row, got 0",
    ),
    "no candidates": (lambda r: r.candidates.clear(), INVALID, "there are no candidates; send the columns item_id"),
    "zero candidates": (
        _without_rows,
        INVALID,
        "zero candidates",
    ),
    "too many rows": (
        lambda r: r.CopyFrom(predict_request(501)),
        INVALID,
        "at most 500 candidates, got 501",
    ),
    "NaN": (
        lambda r: r.candidates["duration"].floats.values.__setitem__(1, float("nan")),
        INVALID,
        "'duration' must be finite, row 1 is nan",
    ),
    "infinite context": (
        lambda r: r.context["hour"].floats.values.__setitem__(0, float("inf")),
        INVALID,
        "'hour' must be finite, row 0 is inf",
    ),
    "level of 0": (lambda r: r.quantile_levels.append(0.0), INVALID, "between 0 and 1, got 0.0"),
    "level of 1": (lambda r: r.quantile_levels.extend([0.5, 1.0]), INVALID, "between 0 and 1, got 1.0"),
    "level NaN": (lambda r: r.quantile_levels.append(float("nan")), INVALID, "quantile_levels must be finite"),
    "too many levels": (lambda r: r.quantile_levels.extend([0.5] * 21), INVALID, "21 quantile_levels, at most 20"),
    "threshold infinite": (lambda r: r.thresholds.append(float("inf")), INVALID, "thresholds must be finite"),
    "unset output": (lambda r: r.outputs.append(cast("pb.Output", 0)), INVALID, "0 is not a valid output"),
    "unknown output": (lambda r: r.outputs.append(cast("pb.Output", 77)), INVALID, "77 is not a valid output"),
    "absent output": (
        lambda r: r.outputs.append(pb.OUTPUT_DENSITY),
        INVALID,
        "has no OUTPUT_DENSITY; it has OUTPUT_MEAN",
    ),
    "scoring without rule": (lambda r: r.scoring.SetInParent(), INVALID, "scoring has no rule; set one of mean"),
    "kappa NaN": (lambda r: setattr(r.scoring.ucb, "kappa", float("nan")), INVALID, "ucb.kappa must be finite"),
    "scoring level": (
        lambda r: setattr(r.scoring.quantile, "level", 1.5),
        INVALID,
        "scoring.quantile.level must lie strictly between 0 and 1",
    ),
    "no cdf for thresholds": (
        _to_few(lambda r: r.thresholds.append(1.0)),
        INVALID,
        "exceedance of thresholds needs cdf, which model 'few' version 1 was exported without",
    ),
    "no cdf for levels": (
        _to_few(lambda r: r.quantile_levels.append(0.33)),
        INVALID,
        "quantile_levels other than the exported ones needs cdf",
    ),
    "no aleatoric for scoring": (
        _to_few(lambda r: setattr(r.scoring.acquisition, "gamma", 1.0)),
        INVALID,
        "acquisition scoring needs aleatoric",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_request_is_refused_with_what_came_and_what_was_expected(running: Running, case: str) -> None:
    change, code, message = CASES[case]
    request = predict_request(3)
    change(request)
    with pytest.raises(grpc.RpcError) as refused:
        running.stub.Predict(request, timeout=5)
    assert refused.value.code() is code, refused.value.details()
    assert message in str(refused.value.details())
    assert len(running.stub.Predict(predict_request(3), timeout=5).mean) == 3, "the server carries on"


def test_bytes_that_are_no_message(running: Running) -> None:
    call = raw_method(running.channel, "/ghostless.v1.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\xff\xff\xff not a message", timeout=5)
    assert refused.value.code() is INVALID
    assert "not a ghostless.v1.PredictRequest" in str(refused.value.details())


def test_a_message_too_large_is_refused(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    with serving_repository(tmp_path, max_message_mb=0.01) as server:
        with pytest.raises(grpc.RpcError) as refused:
            server.stub.Predict(predict_request(5000), timeout=5)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(server.stub.Predict(predict_request(3), timeout=5).mean) == 3
