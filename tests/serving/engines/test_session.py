"""A model file is refused, with its reason, unless everything its metadata promises holds."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from ghostless.contract.errors import InvalidModelError
from serving.engines.session import load_model, warm_up_sizes
from tests.support.onnx_models import SMALL, Recipe, build, metadata_of, write_version


def _save(tmp_path: Path, model: onnx.ModelProto) -> Path:
    file = tmp_path / "model.onnx"
    onnx.save(model, file)
    return file


def _with_props(change: Callable[[dict[str, str]], object]) -> onnx.ModelProto:
    model = build(SMALL)
    props = {p.key: p.value for p in model.metadata_props}
    change(props)
    del model.metadata_props[:]
    helper.set_model_props(model, props)
    return model


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda p: p.clear(), "not a Ghostless model, its metadata lacks ghostless.name"),
        (lambda p: p.pop("ghostless.levels"), "lacks ghostless.levels"),
        (lambda p: p.update({"ghostless.head": '"xx"'}), "head is 'xx'"),
        (lambda p: p.update({"ghostless.format": "99"}), "metadata format 99"),
        (lambda p: p.update({"ghostless.edges": "{"}), "metadata is not JSON"),
        (lambda p: p.update({"ghostless.edges": '["a"]'}), "malformed metadata"),
        (lambda p: p.update({"ghostless.features": "[]"}), "its metadata promises"),
        (lambda p: p.update({"ghostless.levels": "[0.5]"}), r"'quantiles' has shape \(1, 5\), expected \(1, 1\)"),
    ],
)
def test_metadata_must_be_whole_and_true(
    tmp_path: Path, change: Callable[[dict[str, str]], object], complaint: str
) -> None:
    with pytest.raises(InvalidModelError, match=complaint):
        load_model(_save(tmp_path, _with_props(change)), "demo", 1, (1,))


def test_a_file_from_before_unknown_ids_is_served(tmp_path: Path) -> None:
    model = _with_props(lambda props: props.pop("ghostless.unknown_ids"))
    loaded = load_model(_save(tmp_path, model), "demo", 1, (1,))
    assert loaded.metadata.unknown_ids == ()
    assert loaded.metadata.out_of_distribution_over is None


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"\x08\x09 damaged")
    with pytest.raises(InvalidModelError, match="ONNX Runtime can't load it"):
        load_model(file, "demo", 1, (1,))
    with pytest.raises(InvalidModelError, match="can't load it"):
        load_model(tmp_path / "absent.onnx", "demo", 1, (1,))


def test_a_model_that_answers_with_nan_is_refused(tmp_path: Path) -> None:
    file = _save(tmp_path, build(Recipe(mean_factor=float("nan"))))
    with pytest.raises(InvalidModelError, match="output 'mean' is not finite"):
        load_model(file, "demo", 1, (1,))


def test_an_unknown_output_is_refused(tmp_path: Path) -> None:
    model = build(SMALL)
    model.graph.node.append(helper.make_node("Identity", ["mean"], ["surprise"]))
    model.graph.output.append(helper.make_tensor_value_info("surprise", onnx.TensorProto.FLOAT, ["n"]))
    with pytest.raises(InvalidModelError, match="unknown output 'surprise'"):
        load_model(_save(tmp_path, model), "demo", 1, (1,))


def test_a_good_file_says_all_it_knows(tmp_path: Path) -> None:
    write_version(tmp_path, 4)
    model = load_model(tmp_path / "demo" / "4" / "model.onnx", "demo", 4, warm_up_sizes(64))
    assert model.metadata == metadata_of(SMALL)
    assert set(model.properties) == set(metadata_of(SMALL).dump())


def test_warm_up_covers_the_smallest_and_the_largest_batch() -> None:
    assert warm_up_sizes(1) == (1,)
    assert warm_up_sizes(256) == (1, 4, 16, 64, 256)
    assert warm_up_sizes(100) == (1, 4, 16, 64, 100)
