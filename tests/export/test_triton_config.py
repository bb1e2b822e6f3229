"""The configs for Triton: they parse as Triton's own message, fit the graph, and explain themselves."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from export.errors import OptionError
from export.triton_config import CONFIG_FILES, TritonBackend, TritonOptions, config, render, stage, write
from ghostless.contract import metadata
from ghostless.contract.metadata import ModelMetadata
from ghostless.contract.triton_parameters import properties_by_version
from tests.support import onnx_models

OUTPUTS = onnx_models.CR_OUTPUTS
TARGETS: tuple[TritonBackend, ...] = ("onnxruntime", "python")
EVERYTHING = TritonOptions(
    tensorrt=True, cuda_graphs=True, tensorrt_precision="FP16", queue_timeout_us=1_000_000, max_queue_requests=64
)


def described(recipe: onnx_models.Recipe = onnx_models.SMALL) -> ModelMetadata:
    return onnx_models.metadata_of(recipe)


def parsed(file: Path) -> Any:
    return text_format.Parse(file.read_text(), model_config_pb2.ModelConfig())


def made(target: TritonBackend = "onnxruntime", options: TritonOptions | None = None, **recipe: Any) -> Any:
    versions = {1: described(onnx_models.Recipe(**recipe))}
    return config("demo", versions, OUTPUTS, target, options or TritonOptions())


def model_dir(root: Path, *versions: int, recipe: onnx_models.Recipe = onnx_models.SMALL) -> Path:
    for version in versions:
        onnx_models.write_version(root, version, recipe)
        write(root / "demo", version, described(recipe), OUTPUTS, TritonOptions())
    return root / "demo"


def test_both_targets_files_parse_as_tritons_message(tmp_path: Path) -> None:
    directory = model_dir(tmp_path, 1)
    gpu, cpu = (parsed(directory / CONFIG_FILES[target]) for target in TARGETS)
    assert (gpu.name, gpu.backend, cpu.name, cpu.backend) == ("demo", "onnxruntime", "demo", "python")
    assert gpu.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_GPU
    assert cpu.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_CPU
    assert cpu.instance_group[0].count >= 1
    leftovers = {path.name for path in directory.rglob("*") if path.is_file()}
    assert leftovers == {"model.onnx", "config.pbtxt", "python.pbtxt"}


@pytest.mark.parametrize("target", TARGETS)
def test_tensors_are_the_graphs_with_the_rows_as_the_batch(target: TritonBackend) -> None:
    message = made(target)
    assert {tensor.name for tensor in message.input} == {f.name for f in described().features}
    for tensor in message.input:
        assert list(tensor.dims) == [1]
        assert tensor.HasField("reshape")
        assert list(tensor.reshape.shape) == []
    widths = described().widths()
    assert [tensor.name for tensor in message.output] == list(OUTPUTS)
    for tensor in message.output:
        assert list(tensor.dims) == [widths.get(tensor.name, 1)]
        assert tensor.HasField("reshape") == (tensor.name not in widths)


def test_text_features_are_strings_and_stay_out_of_tensorrt() -> None:
    message = made(options=EVERYTHING, features=onnx_models.with_string_ids())
    kinds = {tensor.name: model_config_pb2.DataType.Name(tensor.data_type) for tensor in message.input}
    assert kinds == {
        "user_id": "TYPE_STRING",
        "hour": "TYPE_FP32",
        "item_id": "TYPE_STRING",
        "duration": "TYPE_FP32",
    }
    provider = message.optimization.execution_accelerators.gpu_execution_accelerator[0]
    assert provider.parameters["trt_profile_max_shapes"] == "hour:4096,duration:4096"


def test_tensorrt_has_profiles_cache_and_graphs_only_when_asked_for() -> None:
    assert not made().HasField("optimization")
    assert not made("python", EVERYTHING).HasField("optimization")
    provider = made(options=EVERYTHING).optimization.execution_accelerators.gpu_execution_accelerator[0]
    assert provider.name == "tensorrt"
    assert provider.parameters["precision_mode"] == "FP16"
    assert provider.parameters["trt_profile_min_shapes"] == "user_id:1,hour:1,item_id:1,duration:1"
    assert provider.parameters["trt_profile_opt_shapes"].startswith("user_id:256,")
    assert provider.parameters["trt_engine_cache_path"] == EVERYTHING.engine_cache
    assert provider.parameters["trt_cuda_graph_enable"] == "1"


def test_warm_up_samples_cover_every_input() -> None:
    message = made(options=TritonOptions(warm_up_rows=(1, 64, 2048)))
    assert [sample.batch_size for sample in message.model_warmup] == [1, 64, 2048]
    for sample in message.model_warmup:
        assert set(sample.inputs) == {tensor.name for tensor in message.input}
    # The CPU target runs smaller batches, and can't be warmed up beyond them.
    on_cpu = made("python", TritonOptions(warm_up_rows=(1, 64, 2048)))
    assert [sample.batch_size for sample in on_cpu.model_warmup] == [1, 64]


def test_no_queue_policy_by_default_since_it_makes_tritons_batcher_stall() -> None:
    for target in TARGETS:
        assert made(target).HasField("dynamic_batching")
        assert not made(target).dynamic_batching.HasField("default_queue_policy")


def test_a_deadline_can_shorten_the_wait_in_a_bounded_queue() -> None:
    options = TritonOptions(queue_timeout_us=1_000_000, max_queue_requests=64)
    policy = made(options=options).dynamic_batching.default_queue_policy
    assert policy.allow_timeout_override
    assert policy.default_timeout_microseconds == 1_000_000
    assert policy.max_queue_size == 64
    assert policy.timeout_action == model_config_pb2.ModelQueuePolicy.REJECT


@pytest.mark.parametrize("target", TARGETS)
def test_every_option_is_explained_in_one_line(target: TritonBackend) -> None:
    message = made(target, EVERYTHING)
    text = render(message)
    assert text_format.Parse(text, model_config_pb2.ModelConfig()) == message
    lines = text.splitlines()
    seen: set[tuple[int, str]] = set()
    for before, line in zip(["", *lines], lines, strict=False):
        stripped = line.strip()
        if stripped.startswith("#"):
            assert len(line) <= 120
            assert not before.strip().startswith("#")
            continue
        option = (len(line) - len(line.lstrip()), stripped.split(":")[0].split(" ")[0])
        if option[0] == 0 and option[1] not in ("}", "") and option not in seen:
            assert before.startswith("# "), f"{line!r} has no explanation"
        seen.add(option)


def test_metadata_of_every_version_can_be_read_back(tmp_path: Path) -> None:
    directory = model_dir(tmp_path, 1, 2)
    for file in CONFIG_FILES.values():
        found = properties_by_version(parsed(directory / file).parameters)
        assert sorted(found) == [1, 2]
        for properties in found.values():
            assert ModelMetadata.parse(properties, "config") == described()


def test_a_version_with_other_tensors_takes_the_config_over(tmp_path: Path) -> None:
    model_dir(tmp_path, 1)
    wider = onnx_models.Recipe(levels=(0.1, 0.5, 0.9))
    directory = model_dir(tmp_path, 2, recipe=wider)
    message = parsed(directory / CONFIG_FILES["python"])
    assert list(properties_by_version(message.parameters)) == [2]
    assert {tensor.name: list(tensor.dims) for tensor in message.output}[metadata.QUANTILES] == [3]


def test_a_removed_version_leaves_the_config(tmp_path: Path) -> None:
    directory = model_dir(tmp_path, 1)
    (directory / "1" / "model.onnx").unlink()
    (directory / "1").rmdir()
    model_dir(tmp_path, 2)
    assert list(properties_by_version(parsed(directory / "config.pbtxt").parameters)) == [2]


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    directory = model_dir(tmp_path, 1)
    (directory / "config.pbtxt").write_text("name: {")
    with pytest.raises(OptionError, match=r"config\.pbtxt is not a Triton config"):
        write(directory, 2, described(), OUTPUTS, TritonOptions())


def test_the_python_backends_model_is_put_beside_the_graph(tmp_path: Path) -> None:
    stage(tmp_path)
    assert "class TritonPythonModel" in (tmp_path / "model.py").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensorrt_profile_rows": (8, 4, 16)}, "expected 0 < min <= opt <= max"),
        ({"tensorrt": True, "tensorrt_profile_rows": (1, 2, 16)}, "each larger one would build a new engine"),
        ({"cuda_graphs": True}, "they need TensorRT"),
        ({"warm_up_rows": (0,)}, "warm_up_rows are"),
        ({"preferred_rows": (8192,)}, "preferred_rows are"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TritonOptions(**options)
