"""/v2 as Triton's own HTTP client calls it, against its gRPC client."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.support.http_calls import HttpClient
from tests.support.processes import ServeProcess
from tests.support.running import graph_inputs, predict_request

ROWS = 17
OUTPUTS = ("mean", "quantiles", "bins", "epistemic")
TYPES = {"int64": "INT64", "float32": "FP32"}


@pytest.fixture
def triton(open_server: ServeProcess) -> Iterator[Any]:
    with HttpClient(open_server) as place:
        client = triton_http.InferenceServerClient(f"{place.host}:{place.port}")
        yield client
        client.close()


def inputs(module: Any, **options: Any) -> list[Any]:
    tensors = []
    for name, values in graph_inputs(predict_request(ROWS, 5)).items():
        tensor = module.InferInput(name, values.shape, TYPES[str(values.dtype)])
        tensor.set_data_from_numpy(values, **options)
        tensors.append(tensor)
    return tensors


@pytest.mark.parametrize("is_binary", [True, False])
def test_tritons_http_client_gets_what_its_grpc_client_gets(
    open_server: ServeProcess, triton: Any, is_binary: bool
) -> None:
    asked = [triton_http.InferRequestedOutput(name, binary_data=is_binary) for name in OUTPUTS]
    answer = triton.infer("demo", inputs(triton_http, binary_data=is_binary), outputs=asked, request_id="abc")
    with triton_grpc.InferenceServerClient(open_server.address) as over_grpc:
        expected = over_grpc.infer("demo", inputs(triton_grpc))
    assert answer.get_response()["id"] == "abc"
    for name in OUTPUTS:
        assert answer.as_numpy(name).tobytes() == expected.as_numpy(name).tobytes(), name
        assert answer.as_numpy(name).shape == expected.as_numpy(name).shape


def test_without_named_outputs_all_are_returned_as_binary(triton: Any) -> None:
    answer = triton.infer("demo", inputs(triton_http), model_version="1")
    assert len(answer.get_response()["outputs"]) > 5
    assert np.isfinite(answer.as_numpy("mean")).all()


def test_state_metadata_and_configuration(triton: Any) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("demo")
    assert not triton.is_model_ready("nobody")
    assert triton.get_server_metadata()["name"] == "ghostless"
    assert "binary_tensor_data" in triton.get_server_metadata()["extensions"]
    described = triton.get_model_metadata("demo", "1")
    assert {each["name"]: each["datatype"] for each in described["inputs"]}["user_id"] == "INT64"
    assert triton.get_model_config("demo")["input"][0]["data_type"] == "TYPE_INT64"
    assert triton.get_model_repository_index()[0]["state"] == "READY"


def test_errors_reach_tritons_client_as_its_own(triton: Any) -> None:
    with pytest.raises(InferenceServerException, match="expects the inputs"):
        triton.infer("demo", inputs(triton_http)[:1])
    with pytest.raises(InferenceServerException, match="nobody"):
        triton.get_model_metadata("nobody")


def tensor(**changes: Any) -> dict[str, Any]:
    return {"name": "user_id", "datatype": "INT64", "shape": [1], "data": [1], **changes}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shape": [-1]}, "whole numbers"),
        ({"shape": "x"}, "whole numbers"),
        ({"data": 3}, "as a list"),
        ({"data": [1.5]}, "is INT64"),
        ({"data": [1 << 70]}, "is INT64"),
        ({"data": [[[[[[[[[[1]]]]]]]]]]}, "nested"),
        ({"datatype": "TEXT"}, "datatype 'TEXT'"),
        ({"datatype": "BYTES"}, "send texts"),
        ({"parameters": {"binary_data_size": 8}}, "0 bytes are left"),
        ({"parameters": []}, "must be an object"),
        ({"name": 7}, "`name` must be a text"),
        ({"datatype": "INT32"}, "expects the inputs"),
    ],
)
def test_a_wrong_tensor_is_refused(client: HttpClient, changes: dict[str, Any], says: str) -> None:
    answer = client.post("/v2/models/demo/infer", {"inputs": [tensor(**changes)]})
    assert answer.status == 400
    assert says in answer.json["error"]


@pytest.mark.parametrize("length", ["x", "-1", "9999", "9" * 30])
def test_a_wrong_header_length_is_refused(client: HttpClient, length: str) -> None:
    body = json.dumps({"inputs": [tensor()]}).encode()
    answer = client.post("/v2/models/demo/infer", body, inference_header_content_length=length)
    assert answer.status == 400
