"""Graphs that can't be served under a head are refused with the node and what to change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from learning.errors import RankerError
from learning.own import graph_rules, graph_trial, torch_export

FLOAT = TensorProto.FLOAT
WEIGHT = numpy_helper.from_array(np.eye(3, dtype=np.float32), "weight")


def model(
    *nodes: onnx.NodeProto,
    shape: Sequence[object] = ("n", 3),
    kind: int = FLOAT,
    output: Sequence[object] = ("n", 3),
    outputs: Sequence[str] = ("features",),
    opset: int = 18,
    **changes: Any,
) -> onnx.ModelProto:
    """A graph x -> features, by default one MatMul."""
    nodes = nodes or (helper.make_node("MatMul", ["x", "weight"], ["features"], "product"),)
    graph = helper.make_graph(
        list(nodes),
        "ranker",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, FLOAT, output) for name in outputs],
        [WEIGHT],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("acme", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, **changes)


def node(kind: str, inputs: Sequence[str] = ("x",), name: str = "bad", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), ["features"], name, **attributes)


def test_a_graph_is_reduced_to_what_the_output_needs() -> None:
    extra = helper.make_node("RandomNormalLike", ["features"], ["score"], "sampled")
    made = model(helper.make_node("MatMul", ["x", "weight"], ["features"]), extra, outputs=("score", "features"))
    found = graph_rules.prepared(made, "features", "ranker.onnx")
    assert [item.op_type for item in found.graph.node] == ["MatMul"]
    assert graph_rules.output_width(found, "ranker.onnx") == 3


def test_an_old_opset_is_converted() -> None:
    found = graph_rules.prepared(model(opset=13), "features", "ranker.onnx")
    assert {entry.domain: entry.version for entry in found.opset_import}[""] == torch_export.OPSET


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (model(node("Fancy", domain="acme")), r"node 'bad' \(Fancy\) is a custom operator of 'acme'"),
        (model(node("RandomUniformLike")), r"node 'bad' \(RandomUniformLike\) draws random numbers"),
        (model(node("NonZero")), r"node 'bad' \(NonZero\) has an output whose shape depends"),
        (model(node("Scan", body=helper.make_graph([], "b", [], []), num_scan_inputs=1)), r"\(Scan\) is control flow"),
        (
            model(node("BatchNormalization", ["x", *"abcd"], training_mode=1)),
            r"\(BatchNormalization\) is in training mode.*model.eval\(\)",
        ),
        (model(node("Dropout", ["x", "", "weight"])), r"\(Dropout\) is in training mode"),
        (model(shape=(8, 3)), r"input 'x' has shape \[8, 3\], so its batch dimension is fixed"),
        (model(kind=TensorProto.DOUBLE), r"input 'x' is float64, but features are float32"),
        (model(outputs=("features", "features")), r"two outputs are called 'features'"),
        (model(outputs=("score",)), r"no output 'features'; it has score"),
        (model(opset=99), r"opset 99 is too new"),
    ],
)
def test_what_the_graph_shows(made: onnx.ModelProto, message: str) -> None:
    with pytest.raises(RankerError, match=message):
        graph_rules.prepared(made, "features", "ranker.onnx")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (model(node("Unsqueeze", ["x", "axis"]), output=("n", 1, 3)), r"shape \['n', 1, 3\], expected \[rows, width\]"),
        (model(output=(8, 3)), "output 'features' has shape .* batch dimension is fixed"),
    ],
)
def test_what_the_output_shows(made: onnx.ModelProto, message: str) -> None:
    with pytest.raises(RankerError, match=message):
        graph_rules.output_width(made, "ranker.onnx")


def test_a_new_ir_version_is_refused() -> None:
    made = model()
    made.ir_version = 99
    with pytest.raises(RankerError, match="IR version 99 is too new"):
        graph_rules.prepared(made, "features", "ranker.onnx")


class TestFiles:
    def test_data_beside_the_model_is_read(self, tmp_path: Path) -> None:
        made = model()
        onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        read = graph_rules.read(tmp_path / "m.onnx")
        assert numpy_helper.to_array(read.graph.initializer[0]).tolist() == np.eye(3).tolist()
        (tmp_path / "m.data").unlink()
        with pytest.raises(RankerError, match=r"'weight' lies in 'm.data', which is missing"):
            graph_rules.read(tmp_path / "m.onnx")

    @pytest.mark.parametrize("place", ["../m.data", "/etc/hostname", "a/../../m.data"])
    def test_data_outside_the_folder_is_refused(self, tmp_path: Path, place: str) -> None:
        made = model()
        onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        moved = onnx.load(tmp_path / "m.onnx", load_external_data=False)
        next(entry for entry in moved.graph.initializer[0].external_data if entry.key == "location").value = place
        (tmp_path / "m.onnx").write_bytes(moved.SerializeToString())
        with pytest.raises(RankerError, match="outside the model's folder"):
            graph_rules.read(tmp_path / "m.onnx")

    def test_what_is_no_model(self, tmp_path: Path) -> None:
        with pytest.raises(RankerError, match="no such file"):
            graph_rules.read(tmp_path / "nothing.onnx")
        (tmp_path / "text.onnx").write_text("not a model")
        with pytest.raises(RankerError, match="not an ONNX model"):
            graph_rules.read(tmp_path / "text.onnx")


class TestTrial:
    usual: dict[str, Any] = {"x": np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)}  # noqa: RUF012
    extreme: dict[str, Any] = {"x": np.full((8, 3), 3e38, np.float32)}  # noqa: RUF012

    def test_a_sound_graph_has_a_width(self) -> None:
        assert graph_trial.check(graph_rules.prepared(model(), "features", "r"), "r", self.usual, self.usual) == 3

    @pytest.mark.parametrize(
        ("made", "message"),
        [
            (model(node("Softmax", axis=0)), r"node 'bad' \(Softmax\) softmax over rows"),
            (
                model(
                    helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
                    helper.make_node("ReduceMean", ["x"], ["m"], "rows", axes=[0], keepdims=1),
                    node("Sub", ["x", "m"]),
                    opset=13,
                ),
                r"depends on the other rows of its batch: node 'bad' \(Sub\)",
            ),
            (
                model(
                    helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.array([1, 3], np.int64))),
                    node("Reshape", ["x", "s"]),
                ),
                "fails on 2 rows|for 2 rows, expected",
            ),
            (
                model(helper.make_node("Sub", ["x", "x"], ["z"]), node("Div", ["z", "z"])),
                r"not finite for usual values, first at node 'bad' \(Div\)",
            ),
            (
                model(helper.make_node("Mul", ["x", "x"], ["big"], "square"), node("Sub", ["big", "big"])),
                r"not finite for extreme values, first at node 'square' \(Mul\); clip or standardise",
            ),
        ],
    )
    def test_what_only_running_shows(self, made: onnx.ModelProto, message: str) -> None:
        found = graph_rules.prepared(made, "features", "r")
        with pytest.raises(RankerError, match=message):
            graph_trial.check(found, "r", self.usual, self.extreme)
