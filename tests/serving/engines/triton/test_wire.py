"""Messages to and from Triton, against the code generated from its protocol."""

import numpy as np
import numpy.typing as npt
import pytest
from tritonclient.grpc import service_pb2 as oip

from ghostless.contract import metadata
from serving.engines.triton.catalogue import TritonVersion
from serving.engines.triton.wire import Wire
from serving.errors import EngineError
from tests.support.onnx_models import CR_OUTPUTS, SMALL, metadata_of

WANTED = (metadata.QUANTILES, metadata.MEAN)
Floats = npt.NDArray[np.float32]


@pytest.fixture
def wire() -> Wire:
    return TritonVersion("demo", 3, metadata_of(SMALL), tuple(CR_OUTPUTS), {}, max_rows=4096).wire


def columns(rows: int, seed: int) -> dict[str, npt.NDArray[np.generic]]:
    random = np.random.default_rng(seed)
    types = {"int64": np.int64, "float32": np.float32}
    return {f.name: random.integers(0, 2**40, rows).astype(types[f.type]) for f in SMALL.features}


def response(mean: Floats, quantiles: Floats, identity: str = "") -> bytes:
    answer = oip.ModelInferResponse(model_name="demo", model_version="3", id=identity)
    for name, values in {metadata.MEAN: mean[:, None], metadata.QUANTILES: quantiles}.items():
        answer.outputs.add(name=name, datatype="FP32", shape=values.shape)
        answer.raw_output_contents.append(values.tobytes())
    return bytes(answer.SerializeToString())


@pytest.mark.parametrize("timeout_s", [None, 0.25])
def test_requests_are_what_the_generated_code_reads_also_when_their_head_was_kept(
    wire: Wire, timeout_s: float | None
) -> None:
    for seed in (0, 1):
        inputs = columns(5, seed)
        request = oip.ModelInferRequest.FromString(wire.encode(inputs, WANTED, slice(1, 4), timeout_s))
        assert (request.model_name, request.model_version) == ("demo", "3")
        assert [output.name for output in request.outputs] == list(WANTED)
        assert [tensor.name for tensor in request.inputs] == list(inputs)
        for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
            assert list(tensor.shape) == [3, 1]
            assert raw == inputs[tensor.name][1:4].tobytes()
        assert request.parameters["timeout"].int64_param == (250_000 if timeout_s else 0)


def test_answers_are_read_by_name_also_when_their_layout_was_kept_or_changed(wire: Wire) -> None:
    random = np.random.default_rng(0)
    levels = len(SMALL.levels)
    for identity in ("", "", "another", ""):
        mean, quantiles = random.random(4, np.float32), random.random((4, levels), np.float32)
        outputs = wire.decode(response(mean, quantiles, identity), WANTED, 4)
        assert list(outputs) == list(WANTED)
        np.testing.assert_array_equal(outputs[metadata.MEAN], mean)
        np.testing.assert_array_equal(outputs[metadata.QUANTILES], quantiles)


def test_an_answer_of_another_shape_is_refused_also_after_a_right_one(wire: Wire) -> None:
    levels = len(SMALL.levels)
    right = response(np.zeros(4, np.float32), np.zeros((4, levels), np.float32))
    wrong = response(np.zeros(2 * levels, np.float32), np.zeros((2, 2), np.float32))
    wire.decode(right, WANTED, 4)
    with pytest.raises(EngineError, match="shape"):
        wire.decode(wrong, WANTED, 4)
    with pytest.raises(EngineError, match=metadata.MEAN):
        wire.decode(right, (metadata.MEAN,), 3)
