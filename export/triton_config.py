"""Triton's config of an exported model, for two targets.

    NAME/config.pbtxt           the ONNX Runtime backend on GPUs: the official container
    NAME/configs/python.pbtxt   the Python backend on CPUs: tritonserver --model-config-name=python

The graph takes [n] per feature and n is the batch, whereas Triton's batcher puts a batch dimension before the dims of
the config. So a feature has dims [1] and is reshaped to [] for the graph: clients send [n, 1], the graph sees [n].
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from export.errors import OptionError
from export.triton_explanations import explained
from ghostless.contract import triton_parameters
from ghostless.contract.cores import available_cores
from ghostless.contract.errors import InvalidModelError
from ghostless.contract.metadata import FeatureType, ModelMetadata

TritonBackend = Literal["onnxruntime", "python"]
CONFIG_FILES: dict[TritonBackend, Path] = {"onnxruntime": Path("config.pbtxt"), "python": Path("configs/python.pbtxt")}
BACKEND_MODEL = Path(__file__).parent / "triton_backend" / "model.py"
# On a CPU every row costs the same, so a larger batch gains nothing and makes the requests behind it wait.
CPU_BATCH_ROWS = 1024
_TYPES: dict[FeatureType, str] = {"int64": "TYPE_INT64", "float32": "TYPE_FP32", "string": "TYPE_STRING"}


@dataclass(frozen=True)
class TritonOptions:
    """How Triton runs a model. Options about GPUs or TensorRT apply only to the onnxruntime target."""

    instances: int = 1  # per GPU
    cpu_instances: int = 0  # 0: as many as this machine has cores
    max_batch_rows: int = 4096  # a request with more is split by the facade
    max_queue_delay_us: int = 500  # GPU only; on CPU a batch is formed from the requests already waiting
    preferred_rows: tuple[int, ...] = (256, 1024)
    # 0: no bound. If either is set, Triton's batcher no longer prepares the next batch ahead of time and occasionally
    # sleeps 500 ms although a request is waiting (docs/triton.md). Deadlines do not need them: expired calls are
    # dropped.
    max_queue_requests: int = 0
    queue_timeout_us: int = 0
    warm_up_rows: tuple[int, ...] = (1, 256)
    tensorrt: bool = False
    tensorrt_precision: Literal["FP32", "FP16"] = "FP32"
    tensorrt_profile_rows: tuple[int, int, int] = (1, 256, 4096)  # min, opt, max
    engine_cache: str = "/var/cache/ghostless/tensorrt"
    cuda_graphs: bool = False

    def __post_init__(self) -> None:
        low, opt, high = self.tensorrt_profile_rows
        if not 0 < low <= opt <= high:
            raise OptionError(f"tensorrt_profile_rows are {low}, {opt}, {high}; expected 0 < min <= opt <= max")
        if self.tensorrt and high < self.max_batch_rows:
            raise OptionError(
                f"the TensorRT profile ends at {high} rows but batches may have {self.max_batch_rows}, and each larger "
                "one would build a new engine; raise the profile's maximum or lower max_batch_rows"
            )
        if self.cuda_graphs and not self.tensorrt:
            raise OptionError("CUDA graphs are captured by the TensorRT provider: they need TensorRT on")
        for name in ("preferred_rows", "warm_up_rows"):
            rows = getattr(self, name)
            if not all(0 < n <= self.max_batch_rows for n in rows):
                raise OptionError(f"{name} are {rows}, expected values from 1 to max_batch_rows, {self.max_batch_rows}")


def config(
    name: str,
    versions: Mapping[int, ModelMetadata],
    outputs: Sequence[str],
    target: TritonBackend,
    options: TritonOptions,
) -> Any:
    """The ModelConfig of a model; `versions` have the same tensors, `outputs` are the graph's by name."""
    described = versions[max(versions)]
    message = model_config_pb2.ModelConfig(name=name, backend=target, max_batch_size=_max_rows(target, options))
    for feature in described.features:
        added = message.input.add(name=feature.name, data_type=_TYPES[feature.type], dims=[1])
        added.reshape.SetInParent()
    widths = described.widths()
    for output in outputs:
        added = message.output.add(name=output, data_type="TYPE_FP32", dims=[widths.get(output, 1)])
        if output not in widths:
            added.reshape.SetInParent()
    message.version_policy.all.SetInParent()
    message.response_cache.enable = False
    _batching(message, target, options)
    for rows in options.warm_up_rows:
        if rows <= message.max_batch_size:
            _warm_up(message, rows)
    if target == "python":
        message.instance_group.add(kind="KIND_CPU", count=options.cpu_instances or available_cores())
    else:
        message.instance_group.add(kind="KIND_GPU", count=options.instances)
        message.parameters["intra_op_thread_count"].string_value = "1"
        if options.tensorrt:
            _tensorrt(message.optimization, described, options)
    for version, metadata in versions.items():
        triton_parameters.fill(message.parameters, version, metadata.dump())
    return message


def render(message: Any) -> str:
    """The message as a config.pbtxt, with one line of explanation for every option."""
    return explained(text_format.MessageToString(message))


def stage(version_dir: Path) -> None:
    """Copy the Python backend's model file next to the model.onnx of a version that is being written."""
    shutil.copyfile(BACKEND_MODEL, version_dir / BACKEND_MODEL.name)


def write(
    model_dir: Path, version: int, metadata: ModelMetadata, outputs: Sequence[str], options: TritonOptions
) -> None:
    """Both targets' configs of a model whose `version` has just been published."""
    versions = {**_earlier(model_dir, metadata), version: metadata}
    for target, file in CONFIG_FILES.items():
        text = render(config(model_dir.name, versions, outputs, target, options))
        _replace(model_dir / file, text)


def _max_rows(target: TritonBackend, options: TritonOptions) -> int:
    return options.max_batch_rows if target == "onnxruntime" else min(options.max_batch_rows, CPU_BATCH_ROWS)


def _batching(message: Any, target: TritonBackend, options: TritonOptions) -> None:
    batching = message.dynamic_batching
    if target == "onnxruntime":
        batching.preferred_batch_size.extend(options.preferred_rows)
        batching.max_queue_delay_microseconds = options.max_queue_delay_us
    # Triton checks which messages are present: this one must be, even if it is empty, and the queue policy only if one
    # of its options is set.
    batching.SetInParent()
    if options.queue_timeout_us:
        # A request's own timeout counts only if it is shorter than this one.
        batching.default_queue_policy.default_timeout_microseconds = options.queue_timeout_us
        batching.default_queue_policy.allow_timeout_override = True
    if options.max_queue_requests:
        batching.default_queue_policy.max_queue_size = options.max_queue_requests


def _warm_up(message: Any, rows: int) -> None:
    sample = message.model_warmup.add(name=f"{rows} rows", batch_size=rows)
    for tensor in message.input:
        blank = sample.inputs[tensor.name]
        blank.data_type = tensor.data_type
        blank.dims.extend(tensor.dims)
        blank.zero_data = True


def _tensorrt(optimization: Any, described: ModelMetadata, options: TritonOptions) -> None:
    provider = optimization.execution_accelerators.gpu_execution_accelerator.add(name="tensorrt")
    provider.parameters["precision_mode"] = options.tensorrt_precision
    # TensorRT does not support strings; the look-up of such a feature stays in ONNX Runtime.
    names = [feature.name for feature in described.features if feature.type != "string"]
    for bound, rows in zip(("min", "opt", "max"), options.tensorrt_profile_rows, strict=True):
        provider.parameters[f"trt_profile_{bound}_shapes"] = ",".join(f"{name}:{rows}" for name in names)
    provider.parameters["trt_engine_cache_enable"] = "1"
    provider.parameters["trt_engine_cache_path"] = options.engine_cache
    if options.cuda_graphs:
        provider.parameters["trt_cuda_graph_enable"] = "1"


def _earlier(model_dir: Path, metadata: ModelMetadata) -> dict[int, ModelMetadata]:
    """The versions in the present config that still exist and have the same tensors as the new one."""
    file = model_dir / CONFIG_FILES["onnxruntime"]
    try:
        present = text_format.Parse(file.read_text(), model_config_pb2.ModelConfig())
    except FileNotFoundError:
        return {}
    except text_format.ParseError as error:
        raise OptionError(f"{file} is not a Triton config: {error}; remove it and export again") from error
    versions = {}
    for version, properties in triton_parameters.properties_by_version(present.parameters).items():
        try:
            earlier = ModelMetadata.parse(properties, f"{file}, version {version}")
        except InvalidModelError:  # written in another format: this version is no longer served
            continue
        if (model_dir / str(version)).is_dir() and triton_parameters.have_same_tensors(earlier, metadata):
            versions[version] = earlier
    return versions


def _replace(file: Path, text: str) -> None:
    """Replace the file by a single rename, so that a Triton that is loading never reads half a config."""
    file.parent.mkdir(exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, file)
