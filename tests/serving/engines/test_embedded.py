"""A model file is refused, with its reason, unless everything its metadata promises holds."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from ghostless.contract import repository
from ghostless.contract.errors import ConfigError, InvalidModelError
from serving.engines.embedded import CPU, CUDA, TENSORRT, check_provider, choose_providers, load_model, warm_up_sizes
from tests.support.onnx_models import REALISTIC, SMALL, Recipe, build, metadata_of, write_version


def _save(tmp_path: Path, model: onnx.ModelProto) -> Path:
    file = tmp_path / "model.onnx"
    onnx.save(model, file)
    return file


def _as_format_1(props: dict[str, str]) -> None:
    """As fd7b8c1 and earlier wrote it: without keys that came later."""
    props["ghostless.format"] = "1"
    del props["ghostless.unknown_ids"]
    del props["ghostless.atoms"]


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
        (lambda p: p.update({"ghostless.features": "[]"}), "its metadata declares"),
        (lambda p: p.update({"ghostless.levels": "[0.5]"}), r"'quantiles' has shape \(1, 5\), expected \(1, 1\)"),
    ],
)
def test_metadata_must_be_whole_and_true(
    tmp_path: Path, change: Callable[[dict[str, str]], object], complaint: str
) -> None:
    with pytest.raises(InvalidModelError, match=complaint):
        load_model(_save(tmp_path, _with_props(change)), "demo", 1, (1,))


def test_a_file_from_before_unknown_ids_is_served(tmp_path: Path) -> None:
    model = _with_props(_as_format_1)
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


def test_a_version_damaged_after_its_publication_is_refused(tmp_path: Path) -> None:
    """Zeros in a table leave a file that loads, passes every check and answers wrongly."""
    with repository.staging(tmp_path, "demo") as directory:
        _save(directory, build(REALISTIC))
        version = repository.publish(tmp_path, "demo", directory)
    file = tmp_path / "demo" / str(version) / "model.onnx"
    load_model(file, "demo", version, (1,))
    with file.open("r+b") as opened:
        opened.seek(1 << 20)
        opened.write(bytes(64 << 10))
    with pytest.raises(InvalidModelError, match="was changed or damaged after its export"):
        load_model(file, "demo", version, (1,))


def test_a_version_without_digests_is_served_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    load_model(write_version(tmp_path, 1) / "model.onnx", "demo", 1, (1,))
    assert "has no SHA256SUMS (an older export)" in caplog.text


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


@pytest.mark.parametrize(
    ("wanted", "available", "chosen"),
    [
        ("auto", [CPU], [CPU]),
        ("auto", ["AzureExecutionProvider", CPU], [CPU]),
        ("auto", [TENSORRT, CUDA, CPU], [CUDA, CPU]),
        ("auto", [TENSORRT, CPU], [TENSORRT, CPU]),
        ("cpu", [TENSORRT, CUDA, CPU], [CPU]),
        ("cuda", [TENSORRT, CUDA, CPU], [CUDA, CPU]),
        ("tensorrt", [TENSORRT, CUDA, CPU], [TENSORRT, CUDA, CPU]),
    ],
)
def test_a_gpu_is_taken_where_there_is_one(wanted: str, available: list[str], chosen: list[str]) -> None:
    assert choose_providers(wanted, available) == chosen


@pytest.mark.parametrize("wanted", ["cuda", "tensorrt"])
def test_a_gpu_that_is_not_there_is_an_error_only_if_asked_for(wanted: str) -> None:
    with pytest.raises(ConfigError, match=r"ghostless-server\[serve-gpu\]"):
        choose_providers(wanted, [CPU])


def test_the_provider_that_was_taken_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level("INFO"):
        load_model(_save(tmp_path, build(SMALL)), "demo", 1, (1,), providers="auto")
    assert f"runs on {CPU} (--providers auto)" in caplog.text


def test_a_fall_back_to_the_cpu_is_a_warning_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    check_provider("auto", CUDA, CPU, "model.onnx")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(InvalidModelError, match="could not start CUDAExecutionProvider"):
        check_provider("cuda", CUDA, CPU, "model.onnx")
