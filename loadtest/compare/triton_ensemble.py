"""A 5x ensemble with Triton's ensemble scheduler: it calls the members and then a model that merges their outputs."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from export.triton_config import CONFIG_FILES
from ghostless.contract import repository, triton_parameters
from ghostless.contract.metadata import CDF, ModelMetadata
from loadtest.compare.mixture import member_outputs, merged_outputs
from loadtest.compare.variants import Variant
from serving.engines.embedded import load_model

_BACKEND_MODEL = Path(__file__).parent / "triton_backend" / "model.py"
_SOURCE = Path(__file__).parents[2]
_VERSION = 1


def add(variants: Sequence[Variant], folder: Path, instances: int) -> list[Variant]:
    """The variants, and after each ensemble with five calls the same ensemble as a Triton ensemble."""
    added: list[Variant] = []
    for variant in variants:
        added.append(variant)
        if variant.kind == "five-call":
            added.append(_write(variant, folder / "models" / f"{variant.head}-triton-ensemble", instances))
    return added


def _write(five: Variant, root: Path, instances: int) -> Variant:
    """Write a repository with copies of the members, the merging model and the ensemble."""
    name = f"{five.head}-triton-ensemble"
    if root.exists():
        shutil.rmtree(root)
    for member in five.members:
        shutil.copytree(five.repository / member, root / member)
    first = repository.find(root, five.members[0])
    model = load_model(first.model_file(first.in_service), first.name, first.in_service, warm_up_rows=())
    described = replace(model.metadata, name=name, method="ensemble")
    member_config = _read(first.path)
    outputs = tuple(output for output in merged_outputs(model.outputs) if output != CDF)
    merging = _merging(f"{five.head}-merge", described, outputs, len(five.members), member_config, instances)
    _save(merging, root, _BACKEND_MODEL)
    _save(_ensemble(name, five.members, merging, described, member_config), root, None)
    return Variant(five.head, "triton-ensemble", root, name)


def _read(model_dir: Path) -> Any:
    return text_format.Parse((model_dir / CONFIG_FILES["python"]).read_text(), model_config_pb2.ModelConfig())


def _merging(
    name: str, described: ModelMetadata, outputs: Sequence[str], members: int, member_config: Any, instances: int
) -> Any:
    widths = described.widths()
    config = model_config_pb2.ModelConfig(name=name, backend="python", max_batch_size=member_config.max_batch_size)
    for member in range(members):
        for source in member_outputs(outputs):
            config.input.add(name=f"{member}:{source}", data_type="TYPE_FP32", dims=[widths.get(source, 1)])
    for output in outputs:
        config.output.add(name=output, data_type="TYPE_FP32", dims=[widths.get(output, 1)])
    config.instance_group.add(kind="KIND_CPU", count=instances)
    for key, value in (
        ("source", str(_SOURCE)),
        ("knots", json.dumps(described.knots)),
        ("levels", json.dumps(described.levels)),
        ("matrices", json.dumps(list(widths))),
    ):
        config.parameters[key].string_value = value
    # A facade expects metadata for every model of a Triton, so this one has it too.
    triton_parameters.fill(config.parameters, _VERSION, described.dump())
    return config


def _ensemble(name: str, members: Sequence[str], merging: Any, described: ModelMetadata, member_config: Any) -> Any:
    config = model_config_pb2.ModelConfig(name=name, platform="ensemble", max_batch_size=member_config.max_batch_size)
    for tensor in member_config.input:
        config.input.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    for tensor in merging.output:
        config.output.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    for index, member in enumerate(members):
        step = config.ensemble_scheduling.step.add(model_name=member, model_version=-1)
        for tensor in member_config.input:
            step.input_map[tensor.name] = tensor.name
        for tensor in merging.input:
            owner, _, output = tensor.name.partition(":")
            if int(owner) == index:
                step.output_map[output] = tensor.name
    last = config.ensemble_scheduling.step.add(model_name=merging.name, model_version=-1)
    for tensor in merging.input:
        last.input_map[tensor.name] = tensor.name
    for tensor in merging.output:
        last.output_map[tensor.name] = tensor.name
    triton_parameters.fill(config.parameters, _VERSION, described.dump())
    return config


def _save(config: Any, root: Path, backend_model: Path | None) -> None:
    directory = root / config.name
    (directory / str(_VERSION)).mkdir(parents=True)
    if backend_model is not None:
        shutil.copyfile(backend_model, directory / str(_VERSION) / "model.py")
    for file in CONFIG_FILES.values():
        (directory / file).parent.mkdir(exist_ok=True)
        (directory / file).write_text(text_format.MessageToString(config))
