"""The present server gives the answers that fd7b8c1's server gave, on the files that fd7b8c1 exported.

Each request is alone on the server, as when it was recorded, so that none is merged with another. On a machine with
the same ONNX Runtime and instruction sets as the recording one, what the graph returns is equal byte for byte. What
the server reads from the CDF itself (quantiles at levels that were not exported, scores) may be off by 1e-4 of itself
(1e-5 near zero): today's server inverts the CDF in the same order of operations as a graph does, fd7b8c1's did not.
Elsewhere kernels round differently, and every number may be off by as much; text, counts and shapes must be equal there
too, and a ranking must sort the recorded scores to within as much.

Thompson is left out: it drew the target itself then and draws an item's error now. `epistemic_candidate` is new: for a
file that has none it must be the epistemic variance, and is taken out before the comparison.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as oip

from ghostless.v1 import prediction_pb2 as pb
from loadtest.server_process import running_server
from tests.upgrade.record import PREDICT, call, machine, method_of

RELATIVE, ABSOLUTE = 1e-4, 1e-5
MODELS = ("demo", "quantiles", "pooled")


@pytest.fixture(scope="module")
def channel(old_repository: Path) -> Iterator[grpc.Channel]:
    with running_server(old_repository) as server, grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.mark.parametrize("model", MODELS)
def test_recorded_answers_are_reproduced(model: str, channel: grpc.Channel, old_answers: dict[str, bytes]) -> None:
    same_machine = json.loads(old_answers["machine.json"]) == machine()
    cases = [name.removesuffix(".request") for name in old_answers if name.startswith(f"{model}/")]
    cases = [name for name in dict.fromkeys(cases) if not name.endswith((".response", "/score-thompson"))]
    assert len(cases) > 20
    for name in cases:
        case, recorded = name.partition("/")[2], old_answers[f"{name}.response"]
        answered = _without_new_fields(case, call(channel, case, old_answers[f"{name}.request"]))
        assert_close(_parsed(case, recorded), _parsed(case, answered), name)
        if same_machine:
            old, new = (_from_graph(case, content) for content in (recorded, answered))
            assert old == new, f"{name}: {_first_difference(case, old, new)}"


def test_the_recording_has_what_it_should(old_answers: dict[str, bytes]) -> None:
    """An answer to each rule of scoring, unknown ids, other levels and thresholds, for 1 and 300 rows."""
    for model in MODELS:
        full = pb.PredictResponse.FromString(old_answers[f"{model}/all-outputs-300.response"])
        assert full.rows == 300
        # Rows differ, or a server that mixed them up would pass.
        assert len(set(full.mean)) > 80
        assert len(set(full.uncertainty.epistemic)) > 80
        assert np.std(full.mean) > 100 * RELATIVE
        rules = {
            pb.PredictRequest.FromString(content).scoring.WhichOneof("rule")
            for name, content in old_answers.items()
            if name.startswith(f"{model}/score-") and name.endswith(".request")
        }
        assert rules == {rule.name for rule in pb.Scoring.DESCRIPTOR.oneofs_by_name["rule"].fields}
        levels = pb.PredictResponse.FromString(old_answers[f"{model}/other-levels-1.response"]).quantiles
        assert len(levels.values) == len(levels.levels) == 4
        assert len(pb.PredictResponse.FromString(old_answers[f"{model}/thresholds-300.response"]).exceedance) == 1800
        assert len(pb.PredictResponse.FromString(old_answers[f"{model}/top-k.response"]).ranking) == 10
        assert oip.ModelInferResponse.FromString(old_answers[f"{model}/infer-raw-300.response"]).outputs


@pytest.mark.parametrize("factor", [1 + 1e-3, 1 - 1e-3])
def test_a_number_that_is_off_is_noticed_on_other_machines(old_answers: dict[str, bytes], factor: float) -> None:
    recorded = pb.PredictResponse.FromString(old_answers["demo/all-outputs-300.response"])
    answered = pb.PredictResponse.FromString(old_answers["demo/all-outputs-300.response"])
    assert_close(recorded, answered, "same")
    answered.mean[17] *= factor
    with pytest.raises(AssertionError, match="mean"):
        assert_close(recorded, answered, "off")
    answered.mean[:] = recorded.mean
    answered.version += 1
    with pytest.raises(AssertionError, match="version"):
        assert_close(recorded, answered, "off")


def test_a_wrong_ranking_is_noticed_on_other_machines(old_answers: dict[str, bytes]) -> None:
    recorded = pb.PredictResponse.FromString(old_answers["demo/top-k.response"])
    answered = pb.PredictResponse.FromString(old_answers["demo/top-k.response"])
    answered.ranking[:] = list(reversed(recorded.ranking))
    with pytest.raises(AssertionError, match="ranking"):
        assert_close(recorded, answered, "reversed")


def _without_new_fields(case: str, content: bytes) -> bytes:
    message = _parsed(case, content)
    if isinstance(message, pb.PredictResponse) and message.HasField("uncertainty"):
        assert message.uncertainty.epistemic_candidate == message.uncertainty.epistemic
        assert not message.uncertainty.epistemic_last_layer
        message.uncertainty.ClearField("epistemic_candidate")
    return bytes(message.SerializeToString())


def _from_graph(case: str, content: bytes) -> bytes:
    """Without what the server computes from the CDF."""
    message = _parsed(case, content)
    if isinstance(message, pb.PredictResponse):
        for name in ("quantiles", "score", "ranking"):
            message.ClearField(name)
    return bytes(message.SerializeToString(deterministic=True))


def _parsed(case: str, content: bytes) -> Any:
    kind: Any = pb.PredictResponse if method_of(case) == PREDICT else oip.ModelInferResponse
    return kind.FromString(content)


def assert_close(recorded: Any, answered: Any, name: str) -> None:
    """Equal but for rounding, field by field."""
    if isinstance(recorded, pb.PredictResponse) and recorded.ranking:
        scores = np.asarray(recorded.score)
        expected, found = (scores[list(message.ranking)] for message in (recorded, answered))
        np.testing.assert_allclose(found, expected, RELATIVE, ABSOLUTE, err_msg=f"{name}: ranking")
    for field in recorded.DESCRIPTOR.fields:
        where = f"{name}: {field.name}"
        one, other = getattr(recorded, field.name), getattr(answered, field.name)
        if field.name == "ranking":
            assert len(one) == len(other), where
        elif field.name == "raw_output_contents":
            _assert_numbers_close([_floats(part) for part in one], [_floats(part) for part in other], where)
        elif field.cpp_type == field.CPPTYPE_FLOAT:
            _assert_numbers_close([np.atleast_1d(one)], [np.atleast_1d(other)], where)
        elif isinstance(one, Message):
            assert_close(one, other, where)
        elif field.cpp_type == field.CPPTYPE_MESSAGE and not hasattr(one, "keys"):
            assert len(one) == len(other), where
            for index, (part, answer) in enumerate(zip(one, other, strict=True)):
                assert_close(part, answer, f"{where}[{index}]")
        else:
            assert one == other, where


def _assert_numbers_close(recorded: list[Any], answered: list[Any], where: str) -> None:
    assert [len(part) for part in recorded] == [len(part) for part in answered], where
    for one, other in zip(recorded, answered, strict=True):
        np.testing.assert_allclose(other, one, RELATIVE, ABSOLUTE, err_msg=where)


def _floats(raw: bytes) -> Any:
    return np.frombuffer(raw, np.float32)


def _first_difference(case: str, recorded: bytes, answered: bytes) -> str:
    one, other = _parsed(case, recorded), _parsed(case, answered)
    for field in one.DESCRIPTOR.fields:
        if getattr(one, field.name) != getattr(other, field.name):
            return f"{field.name} differs"
    return "the same values in other bytes"
