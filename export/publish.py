"""Writes an exported graph to disk and publishes it in the model repository."""

import platform
from datetime import UTC, datetime
from importlib import metadata as packages
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch

from export import calibration, graph, network, options, reference, rows, triton_config, verification
from export.builder import Array, GraphBuilder, Place
from export.checks import Check
from export.errors import OptionError, VerificationError
from export.graph import Networks
from export.options import ExportOptions, Layout
from export.triton_config import TritonOptions
from export.verification import Report
from ghostless.contract import metadata, model_file, repository
from ghostless.contract.metadata import FeatureSpec, ModelMetadata, TargetSpec
from learning.backbone import activate
from learning.checkpoint import Checkpoint

# If the tensors are larger than this, they are stored in a separate file: a protobuf is limited to 2 GB.
EXTERNAL_BYTES = 512 * 1024 * 1024
EXTERNAL_FILE = "model.onnx.data"
EXTERNAL_TENSOR_BYTES = 1 << 20
# Tensors begin at page boundaries, so that a runtime can map them.
PAGE = 4096
_TOOLS = ("ghostless", "torch", "onnx", "onnxruntime", "numpy")


def describe(name: str, networks: Networks, layout: Layout) -> ModelMetadata:
    """The `ghostless.*` metadata of the graph."""
    checkpoint = networks.first
    vocabularies = checkpoint.encoding.vocabularies
    specs = tuple(
        FeatureSpec(f.name, f.type, f.role, len(vocabularies.get(f.name, ())), rows.examples(checkpoint.encoding, f))
        for f in checkpoint.schema.features
    )
    target = checkpoint.schema.target
    return ModelMetadata(
        name=name,
        head=networks.head,
        method=networks.method,
        features=specs,
        target=TargetSpec(target.name, target.unit, target.low, target.high),
        levels=tuple(round(level, 10) for level in layout.levels.tolist()),
        edges=_plain(layout.edges),
        knots=_plain(layout.knots),
        grid=_plain(layout.grid),
        atoms=_plain(layout.atoms),
        calibration=_calibration(networks, layout),
        data_fingerprint=checkpoint.fingerprint,
        tools={**{tool: packages.version(tool) for tool in _TOOLS}, "python": platform.python_version()},
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        ranges={name: (min(_plain(knots)), max(_plain(knots))) for name, knots in checkpoint.encoding.knots.items()},
        unknown_ids=checkpoint.schema.id_names if metadata.UNKNOWN_IDS in layout.outputs else (),
        effects=_effects(networks),
        pairs={} if networks.effects is None or checkpoint.pairs is None else checkpoint.pairs.to_dict(),
    )


def _effects(networks: Networks) -> dict[str, Any]:
    """Distribution of the ids' effects; empty if there are none."""
    effects = networks.effects
    if effects is None:
        return {}
    roles = {feature.name: feature.role for feature in networks.first.schema.features}
    features = {
        name: {"prior": effects.effects.priors[name], "role": roles[name], "parent": effects.parents.get(name)}
        for name in effects.names
    }
    return {
        "features": features,
        "rank": effects.rank,
        "pair": list(effects.pair or ()),
        "noise": effects.noise,
        "level": effects.level,
        "gamma": effects.gamma,
    }


def _calibration(networks: Networks, layout: Layout) -> dict[str, Any]:
    """How the distribution is calibrated, and the run's figures, including the logit variances of the training set.

    With several members the logit variances are omitted: the graph's logit variance then measures the disagreement of
    the members, which the figures of a single member don't show.
    """
    figures = dict(networks.first.metrics)
    fitted = calibration.described(networks, layout)
    if fitted:
        figures[metadata.MAP] = fitted
    if networks.members == 1 or networks.weights:
        return figures
    return {key: value for key, value in figures.items() if not key.startswith(metadata.LOGIT_VARIANCE)}


def _plain(values: Array) -> tuple[float, ...]:
    """The shortest numbers that are the same float32 values: 0.225, not 0.22499999403953552."""
    return tuple(float(str(value)) for value in values.astype(np.float32))


def save(g: GraphBuilder, properties: dict[str, str], directory: Path) -> Path:
    """Write model.onnx, with its large tensors in a separate file if one protobuf could not hold them."""
    path = directory / repository.MODEL_FILE
    beside: dict[str, Place] = {}
    if sum(value.nbytes for value in g.initializers.values()) > EXTERNAL_BYTES:
        # Written from the arrays: a tensor of 2 GB must not be put into a protobuf even temporarily.
        with (directory / EXTERNAL_FILE).open("wb") as file:
            for name, value in g.initializers.items():
                if value.nbytes > EXTERNAL_TENSOR_BYTES:
                    file.seek(-(-file.tell() // PAGE) * PAGE)
                    beside[name] = Place(EXTERNAL_FILE, file.tell())
                    np.ascontiguousarray(value).tofile(file)
    path.write_bytes(g.model(properties, beside).SerializeToString())
    return path


def export_model(
    networks: Networks,
    name: str,
    root: Path,
    wanted: ExportOptions,
    promote: bool = True,
    triton: TritonOptions | None = None,
) -> tuple[int, Report]:
    """Build, save, verify and publish; returns the version. If anything fails, the repository is unchanged."""
    layout = options.resolve(wanted, networks.first, bool(networks.weights), networks.calibration)
    layout = calibration.calibrate(networks, layout)
    facts = describe(name, networks, layout)
    if wanted.precision == "fp16" and networks.first.model_config.own:
        raise OptionError(f"{name}: --precision fp16 needs a built-in backbone; export it as fp32")
    scan = overflow_scan(networks) if wanted.precision == "fp16" else []
    if not Report(scan).ok:
        raise VerificationError(f"{name}: float16 can't hold it: {Report(scan).failures()}; export it as fp32")
    with repository.staging(root, name) as directory:
        built = graph.build(networks, layout, wanted.precision)
        path = save(built, facts.dump(), directory)
        size = sum(file.stat().st_size for file in directory.iterdir())
        nodes = len(built.nodes)
        del built
        session = ort.InferenceSession(str(path), _one_thread(), providers=["CPUExecutionProvider"])
        model_file.trial_run(session, model_file.read_metadata(session, str(path)), 1, str(path))

        def run(columns: dict[str, Array]) -> dict[str, Array]:
            return dict(zip(layout.outputs, session.run(layout.outputs, columns), strict=True))

        report = verification.verify(run, networks, layout, wanted.precision)
        if not report.ok:
            raise VerificationError(f"{name}: the graph does not answer as the model does: {report.failures()}")
        details: dict[str, Any] = {"model": name, "method": networks.method, "nodes": nodes, "bytes": size}
        report = Report(
            [*report.checks, *scan],
            {**report.facts, **details, "precision": wanted.precision, "created": facts.created},
        )
        (directory / "report.json").write_text(report.to_json())
        (directory / "report.md").write_text(report.to_markdown())
        triton_config.stage(directory)
        version = repository.publish(root, name, directory, promote)
    triton_config.write(root / name, version, facts, layout.outputs, triton or TritonOptions())
    return version, report


def _one_thread() -> ort.SessionOptions:
    """Session options for verification. It compares numbers, so it must use one thread: with several, the order of
    summation varies."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options


@torch.no_grad()
def overflow_scan(networks: Networks) -> list[Check]:
    """Largest weight and activation of the half-precision part, as a fraction of float16's largest number."""
    limit = float(np.finfo(np.float16).max)
    weights = max(_largest_weight(checkpoint) for checkpoint in networks.checkpoints)
    activations = max(_largest_activation(checkpoint) for checkpoint in networks.checkpoints)
    return [
        Check("fp16: largest weight over the largest float16", weights / limit, 0.5),
        Check("fp16: largest activation over the largest float16", activations / limit, 0.5),
    ]


def _largest_weight(checkpoint: Checkpoint) -> float:
    """Largest weight of the hidden layers, with spectral norm folded in as in the graph, and of all rows of all tables,
    which are converted when they enter the layers."""
    towers = checkpoint.model.towers
    tables = [towers.table(name).numpy() for name in towers.tables]
    parts = (*tables, *(part for layer in network.hidden_layers(checkpoint) for part in layer))
    return max(float(np.abs(values).max()) for values in parts)


def _largest_activation(checkpoint: Checkpoint) -> float:
    """Largest activation after the input and after every layer, including extreme inputs."""
    model = checkpoint.model
    residual, activation = model.backbone.residual, model.backbone.activation
    largest = 0.0
    for part in (rows.plausible(checkpoint.encoding, 2048, 0), rows.extreme(checkpoint.encoding)):
        h = model.backbone.expand(model.towers(reference.encode(checkpoint, part)))
        largest = max(largest, float(h.abs().max()))
        for index, layer in enumerate(model.backbone.layers):
            branch = layer(h)
            largest = max(largest, float(branch.abs().max()))
            branch = activate(branch, activation) if index or not residual else branch
            h = h + branch if index and residual else branch
            largest = max(largest, float(h.abs().max()))
    return largest
