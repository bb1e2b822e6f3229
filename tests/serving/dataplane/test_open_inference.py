"""Triton's own client, unchanged, against the facade."""

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from serving.engines.embedded import LoadedModel, load_model
from tests.support.onnx_models import SMALL, Recipe, with_string_ids, write_version
from tests.support.running import Running, graph_inputs, predict_request, serving_repository
from tests.support.tritons import serving_triton

_TYPES = {"int64": "INT64", "float32": "FP32", "object": "BYTES"}


@pytest.fixture(scope="module", params=["embedded", "triton"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("repository")
    write_version(root, 1, SMALL)
    write_version(root, 2, Recipe(seed=1))
    write_version(root, 1, Recipe(features=with_string_ids()), "texts")
    serve = serving_repository if request.param == "embedded" else serving_triton
    with serve(root, default_model="demo") as server:
        server.engine.refresh()  # type: ignore[attr-defined]  # the embedded engine loads the older version too
        yield server


def _graph(running: Running, version: int) -> LoadedModel:
    """The model's file itself, whatever engine serves it."""
    assert running.root is not None
    return load_model(running.root / "demo" / str(version) / "model.onnx", "demo", version, warm_up_rows=())


@pytest.fixture
def client(running: Running) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(running.address) as client:
        yield client


def _tensors(columns: dict[str, np.ndarray], shape: tuple[int, ...] = (-1,)) -> list[triton.InferInput]:
    tensors = []
    for name, values in columns.items():
        shaped = values.reshape(shape)
        tensor = triton.InferInput(name, list(shaped.shape), _TYPES[str(values.dtype)])
        tensor.set_data_from_numpy(shaped)
        tensors.append(tensor)
    return tensors


def test_server_and_models_say_what_they_are(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("demo")
    assert client.is_model_ready("demo", "1")
    assert not client.is_model_ready("demo", "7")
    assert not client.is_model_ready("nope")
    assert client.get_server_metadata().name == "ghostless"
    described = client.get_model_metadata("demo")
    assert sorted(described.versions) == ["1", "2"]
    assert [(t.name, t.datatype, list(t.shape)) for t in described.inputs] == [
        ("user_id", "INT64", [-1]),
        ("hour", "FP32", [-1]),
        ("item_id", "INT64", [-1]),
        ("duration", "FP32", [-1]),
    ]
    assert {t.name: list(t.shape) for t in described.outputs}["bins"] == [-1, 10]
    config = client.get_model_config("demo").config
    assert (config.name, config.max_batch_size, len(config.input)) == ("demo", 0, 4)
    index = client.get_model_repository_index()
    assert {(m.name, m.version, m.state) for m in index.models} >= {("demo", "2", "READY")}


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
@pytest.mark.parametrize("version", ["", "1"])
def test_inference_equals_the_graph(
    running: Running, client: triton.InferenceServerClient, version: str, shape: tuple[int, ...]
) -> None:
    inputs = graph_inputs(predict_request(13))
    result = client.infer("demo", _tensors(inputs, shape), model_version=version, request_id="r1", client_timeout=5)
    model = _graph(running, int(version or 2))
    assert result.get_response().model_version == str(model.version)
    for name, expected in model.run(inputs, model.outputs).items():
        np.testing.assert_array_equal(result.as_numpy(name), expected)
    assert result.get_response().id == "r1"


def test_asked_for_outputs_only(client: triton.InferenceServerClient) -> None:
    asked = [triton.InferRequestedOutput("mean")]
    result = client.infer("demo", _tensors(graph_inputs(predict_request(3))), outputs=asked)
    assert [output.name for output in result.get_response().outputs] == ["mean"]


def test_text_tensors(client: triton.InferenceServerClient) -> None:
    columns = {
        "user_id": np.array(["id1", "id1"], np.object_),
        "hour": np.zeros(2, np.float32),
        "item_id": np.array(["id3", "grüß dich"], np.object_),
        "duration": np.ones(2, np.float32),
    }
    assert client.infer("texts", _tensors(columns)).as_numpy("mean").shape == (2,)


def test_typed_contents(running: Running) -> None:
    inputs = graph_inputs(predict_request(4))
    request = service_pb2.ModelInferRequest(model_name="demo")
    for name, values in inputs.items():
        tensor = request.inputs.add(name=name, datatype=_TYPES[str(values.dtype)], shape=[4])
        field = tensor.contents.int64_contents if values.dtype == np.int64 else tensor.contents.fp32_contents
        field.extend(values.tolist())
    response = service_pb2_grpc.GRPCInferenceServiceStub(running.channel).ModelInfer(request, timeout=5)
    model = _graph(running, 2)
    at = [output.name for output in response.outputs].index("mean")
    mean = np.frombuffer(response.raw_output_contents[at], np.float32)
    np.testing.assert_array_equal(mean, model.run(inputs, ("mean",))["mean"])


def _infer_error(client: triton.InferenceServerClient, columns: dict[str, np.ndarray], model: str = "demo") -> str:
    with pytest.raises(InferenceServerException) as refused:
        client.infer(model, _tensors(columns), client_timeout=5)
    return f"{refused.value.status()}: {refused.value.message()}"


def test_mistakes_are_named(client: triton.InferenceServerClient) -> None:
    good = graph_inputs(predict_request(3))
    without = {name: values for name, values in good.items() if name != "hour"}
    assert "expects the inputs ['duration', 'hour', 'item_id', 'user_id'], got" in _infer_error(client, without)
    assert "must be INT64, got FP32" in _infer_error(client, {**good, "item_id": good["duration"]})
    assert "same number of rows" in _infer_error(client, {**good, "hour": np.ones(2, np.float32)})
    nan = np.array([1, np.nan, 1], np.float32)
    assert "row 1 is nan" in _infer_error(client, {**good, "duration": nan})
    assert "NOT_FOUND" in _infer_error(client, good, "nope")
    with pytest.raises(InferenceServerException, match="no output"):
        client.infer("demo", _tensors(good), outputs=[triton.InferRequestedOutput("nope")])
    with pytest.raises(InferenceServerException, match="versions are numbers"):
        client.infer("demo", _tensors(good), model_version="latest")


def test_what_is_not_offered_says_so(client: triton.InferenceServerClient, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InferenceServerException) as refused:
        client.get_inference_statistics("demo")
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"
    assert "does not offer" in refused.value.message()
    assert "Traceback" not in caplog.text
