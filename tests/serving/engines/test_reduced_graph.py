"""A graph reduced to some outputs: no node too many, the same answers, and refusals where it could not be right."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from ghostless.contract import metadata
from ghostless.contract.model_file import random_rows
from serving.engines.embedded import load_model, session_options
from serving.engines.reduced_graph import reduce_graph
from tests.support.onnx_models import CR_OUTPUTS, REALISTIC, Recipe, build, with_string_ids, write_version

ROOMY = 1 << 30


def _reduced(model: onnx.ModelProto, *outputs: str, most: int = ROOMY) -> onnx.ModelProto | None:
    content = reduce_graph(memoryview(model.SerializeToString()), outputs, most)
    return None if content is None else onnx.load_from_string(content)


def test_only_what_the_outputs_need_is_left() -> None:
    whole = build(REALISTIC)
    reduced = _reduced(whole, metadata.MEAN)
    assert reduced is not None
    onnx.checker.check_model(reduced, full_check=True)
    assert [output.name for output in reduced.graph.output] == [metadata.MEAN]
    assert reduced.graph.input == whole.graph.input
    assert reduced.metadata_props == whole.metadata_props
    # As onnx's own extraction has it.
    inputs = [each.name for each in whole.graph.input]
    expected = onnx.utils.Extractor(whole).extract_model(inputs, [metadata.MEAN])
    assert [node.output[:] for node in reduced.graph.node] == [node.output[:] for node in expected.graph.node]
    assert {each.name for each in reduced.graph.initializer} == {each.name for each in expected.graph.initializer}
    assert len(reduced.graph.node) < len(whole.graph.node)


def test_too_large_weights_are_not_held_twice() -> None:
    whole = build(REALISTIC)
    tables = sum(len(each.SerializeToString()) for each in whole.graph.initializer)
    assert _reduced(whole, metadata.MEAN, most=tables) is not None
    assert _reduced(whole, metadata.MEAN, most=10_000) is None


def test_weights_outside_the_file_are_left_there() -> None:
    model = build()
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    reduced = _reduced(model, *(output.name for output in model.graph.output))
    assert reduced is None


def test_a_graph_inside_a_node_may_read_anything() -> None:
    """Its names are not among the node's inputs."""
    model = build()
    branch = helper.make_graph(
        [helper.make_node("Identity", ["mean"], ["taken"])],
        "branch",
        [],
        [helper.make_tensor_value_info("taken", TensorProto.FLOAT, ["n"])],
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    model.graph.node.append(helper.make_node("If", ["always"], ["twin"], then_branch=branch, else_branch=branch))
    assert _reduced(model, "twin") is None


@pytest.mark.parametrize("damage", [b"\x0f", b"\x3a\xff\xff\x03"])
def test_what_is_no_model_is_an_error(damage: bytes) -> None:
    with pytest.raises(ValueError, match="model file"):
        reduce_graph(memoryview(damage), ("mean",), ROOMY)


@pytest.mark.parametrize(
    "recipe",
    [REALISTIC, Recipe(outputs=CR_OUTPUTS), Recipe(features=with_string_ids())],
    ids=["quantiles", "histogram", "string ids"],
)
def test_a_loaded_model_answers_the_same_from_reduced_graphs(tmp_path: Path, recipe: Recipe) -> None:
    file = write_version(tmp_path, 1, recipe) / "model.onnx"
    loaded = load_model(file, "demo", 1, (1, 4))
    offered = [outputs for outputs, _ in loaded.reduced]
    assert offered[0] == {metadata.MEAN}
    assert metadata.QUANTILES not in offered[1]
    whole = ort.InferenceSession(str(file), session_options(), providers=["CPUExecutionProvider"])
    rows = random_rows(loaded.metadata, 33)
    for wanted in ((metadata.MEAN,), (metadata.EPISTEMIC, metadata.MEAN), (metadata.MEAN, metadata.QUANTILES)):
        answered = loaded.run(rows, wanted)
        assert tuple(answered) == wanted
        for name, expected in zip(wanted, whole.run(list(wanted), rows), strict=True):
            np.testing.assert_array_equal(answered[name], expected)


def test_a_model_with_the_mean_alone_needs_no_second_graph(tmp_path: Path) -> None:
    file = write_version(tmp_path, 1, Recipe(outputs=(metadata.MEAN,))) / "model.onnx"
    assert load_model(file, "demo", 1, (1,)).reduced == ()


def test_random_answers_are_not_reduced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A graph that draws its masks answers anew each time, so no reduced one can be compared with it."""
    model = build()
    (mean,) = (node for node in model.graph.node if "mean" in node.output)
    mean.output[:] = ["mean_before" if name == "mean" else name for name in mean.output]
    model.graph.node.append(helper.make_node("RandomNormalLike", ["mean_before"], ["mean"]))
    file = tmp_path / "model.onnx"
    onnx.save(model, file)
    loaded = load_model(file, "demo", 1, (1,))
    assert loaded.reduced == ()
    assert "gives other answers" in caplog.text
