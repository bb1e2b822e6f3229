"""The description against what the server really answers."""

import re
from typing import Any

import jsonschema

from serving.console.openapi import openapi
from tests.support.http_calls import HttpClient
from tests.support.running import predict_request


def references(content: Any) -> set[str]:
    if isinstance(content, dict):
        own = {content["$ref"]} if "$ref" in content else set()
        return own.union(*map(references, content.values()))
    return set().union(*map(references, content)) if isinstance(content, list) else set()


def check(content: Any, schema: str) -> None:
    jsonschema.validate(content, {"$ref": f"#/components/schemas/{schema}", **openapi()})


def test_every_reference_and_identifier_is_right() -> None:
    described = openapi()
    for reference in references(described):
        part: Any = described
        for key in reference.removeprefix("#/").split("/"):
            part = part[key]
    operations = [each for path in described["paths"].values() for each in path.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    for path, methods in described["paths"].items():
        for operation in methods.values():
            named = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path)


def test_what_is_described_is_there_and_answers_as_described(client: HttpClient) -> None:
    described = client.get("/openapi.json").json
    assert described == openapi()
    for path, methods in described["paths"].items():
        for method in methods:
            answer = client.call(
                method.upper(), path.format(name="demo", version=1), b"{}" if method == "post" else None
            )
            assert answer.status in (200, 400), path
    check(client.get("/v1/models").json, "ListModelsResponse")
    check(client.get("/v1/models/demo").json, "Model")
    assert (
        client.get("/v1/models/nobody").json.keys() == described["components"]["schemas"]["Error"]["properties"].keys()
    )


def test_a_request_and_its_answer_have_the_described_form(client: HttpClient) -> None:
    request = predict_request(2)
    content = {
        "context": {"user_id": 1, "hour": {"floats": {"values": [3.5]}}},
        "candidates": {"item_id": [1, 2], "duration": list(request.candidates["duration"].floats.values)},
        "scoring": {"risk_averse": {"lambda": 0.5}},
    }
    check(content, "PredictRequest")
    answer = client.post("/v1/predict", content)
    assert answer.status == 200, answer.body
    check(answer.json, "PredictResponse")
