"""Small networks to export, with random instead of trained weights, so that no weight is zero or equal to another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from export import calibration, graph, options, publish, rows
from export.builder import Array
from export.graph import Networks
from export.options import ExportOptions, Layout
from ghostless.heads.calibration import PIECES, Calibration
from ghostless.heads.effect_variance import EffectVariance
from ghostless.heads.effects import Effects
from ghostless.heads.factors import Factors
from learning.checkpoint import Checkpoint, build_model
from learning.config import ModelConfig, TrainConfig
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.data.video import VIDEO_SCHEMA
from learning.schema import Feature, Schema, Target
from learning.trained import TrainedModel
from serving.engines.embedded import LoadedModel, load_model

Run = Callable[[dict[str, Array]], dict[str, Array]]

TARGET = Target("watch_ratio", "ratio", 0.0, 3.0)
# Every kind of input: string ids, hash-like ids that need a map, ids that index a table directly, buckets, numbers.
EVERY_KIND = Schema(
    (
        Feature("user", "id", "context", type="string", embedding=5),
        Feature("hash", "id", type="int64", embedding=6),
        Feature("category", "id", type="int64", embedding=4),
        Feature("duration", "bucket", type="float32", embedding=4, buckets=9),
        Feature("price", "number", type="float32"),
    ),
    TARGET,
)


def config(**changes: Any) -> ModelConfig:
    small: dict[str, Any] = {"hidden": (32, 16, 8), "levels": 20, "groups": 5, "bins": 12, "rank": 4}
    return ModelConfig(**{**small, **changes})


def random_table(schema: Schema, count: int = 1500, seed: int = 0, atoms: Sequence[float] = ()) -> Table:
    """Rows of the right types. The target has two peaks, and a tenth of the rows at each of `atoms`."""
    random = np.random.default_rng(seed)
    columns: dict[str, Array] = {}
    for feature in schema.features:
        if feature.type == "string":
            columns[feature.name] = np.array([f"u{number}" for number in random.integers(0, 40, count)])
        elif feature.name == "hash":
            known = random.integers(-(2**62), 2**62, 50)
            columns[feature.name] = random.choice(known, count)
        elif feature.is_coded:
            columns[feature.name] = random.integers(0, 60, count)
        elif feature.kind == "bucket":
            columns[feature.name] = np.round(random.uniform(0, 100, count)).astype(np.float32)
        else:
            columns[feature.name] = random.normal(20.0, 5.0, count).astype(np.float32)
    peaks = np.where(random.random(count) < 0.4, random.normal(0.2, 0.1, count), random.normal(1.5, 0.4, count))
    clipped = np.clip(peaks, schema.target.low, schema.target.high)
    for place, value in enumerate(atoms):
        clipped[place::10] = value
    return Table(schema, columns, clipped.astype(np.float32))


def shaken(
    schema: Schema = EVERY_KIND, model_config: ModelConfig | None = None, seed: int = 0, table: Table | None = None
) -> Checkpoint:
    """A checkpoint with random weights from `seed`; the encoding is fitted on `table`."""
    model_config = model_config or config()
    encoding = Encoding.fit(table or random_table(schema))
    torch.manual_seed(seed)
    model = build_model(model_config, encoding).eval()
    posterior = model.head.posterior
    with torch.no_grad():
        posterior.mean.normal_(0.0, 1.0 / posterior.mean.shape[1] ** 0.5)
        for layer in model.backbone.layers:
            layer.get_parameter("bias").normal_(0.0, 0.1)
        for name in model.towers.tables:
            model.towers.table(name).normal_(0.0, 0.5)
        # The trained parameters of the posterior's shape; a vanilla twin has none.
        if model.backbone.cross is not None and model_config.head == "qr":
            # QR's split is linear in the weights: with a wide posterior, a test would show that instead of an error.
            for factor in model.backbone.cross.factors:
                factor.mul_(0.5)
        spread = {
            "log_sd": (-4.5, 0.5),
            "learned_factor": (0.0, 0.02),
            "lower": (0.0, 0.01),
            "log_scales": (0.0, 0.3),
        }
        for parameter_name, parameter in posterior.named_parameters():
            if parameter_name in spread and parameter.requires_grad:
                parameter.normal_(*spread[parameter_name])
    return Checkpoint(model, encoding, model_config, TrainConfig(), "shaken", "f" * 64, {"train_rows": 1500})


def shaken_ranker(table: Table, own: str) -> Checkpoint:
    """A checkpoint with an untrained backbone of somebody else."""
    encoding, own_config = Encoding.fit(table), config(head="cr", own=own)
    torch.manual_seed(0)
    model = build_model(own_config, encoding).eval()
    return Checkpoint(model, encoding, own_config, TrainConfig(), "shaken", "f" * 64, {"train_rows": table.rows})


def random_effects(
    encoding: Encoding,
    parents: Mapping[str, str] | None = None,
    pair: tuple[str, str] | None = None,
    gamma: int = 1,
    seed: int = 0,
) -> EffectVariance:
    """Random effects of every id. Their variances are at least a hundredth of the prior variance, and equal to it for
    an unknown id. `pair` gets factors of rank 2."""
    random = np.random.default_rng(seed)
    names = encoding.schema.id_names
    heights = {name: encoding.cardinality(name) for name in names}
    priors = {name: float(random.uniform(0.02, 0.1)) for name in names}
    variance = {name: priors[name] * random.uniform(0.01, 1.0, heights[name]) for name in names}
    for name in names:
        variance[name][0] = priors[name]
    mean = {name: random.normal(0.0, 0.2, heights[name]) for name in names}
    context = frozenset(feature.name for feature in encoding.schema.features if feature.role == "context")
    factors = None
    if pair is not None:
        roots = [random.normal(0.0, 0.1, (heights[name], 3, 3)) for name in pair]
        means = [random.normal(0.0, 0.4, (heights[name], 3)) for name in pair]
        first, second = (root @ root.swapaxes(1, 2) + 1e-3 * np.eye(3) for root in roots)
        factors = Factors(pair, (means[0], means[1]), (first, second), noise=0.2, inflation=1.3)
    fitted = Effects(mean, variance, priors, dict(parents or {}), noise=0.2, side=np.zeros(1))
    return EffectVariance(fitted, context.intersection(names), factors, level=0.4, gamma=gamma)


def video_checkpoint(seed: int = 0, **changes: Any) -> Checkpoint:
    """A small version of what `ghostless train --data synthetic` writes, with the short-video schema."""
    return shaken(VIDEO_SCHEMA, config(**changes), seed)


@dataclass(frozen=True)
class ExportedGraph:
    """An exported graph, loaded as in the server."""

    networks: Networks
    layout: Layout
    model: onnx.ModelProto
    file: Path
    loaded: LoadedModel

    def __call__(self, columns: dict[str, Array]) -> dict[str, Array]:
        return self.loaded.run(rows.fed(columns), self.layout.outputs)


def serve(networks: Networks, directory: Path, wanted: ExportOptions | None = None) -> ExportedGraph:
    """Build, save and load a graph, without the verification of an export."""
    wanted = wanted or ExportOptions()
    layout = options.resolve(wanted, networks.first, bool(networks.weights), networks.calibration)
    layout = calibration.calibrate(networks, layout)
    directory.mkdir(parents=True, exist_ok=True)
    built = graph.build(networks, layout, wanted.precision)
    file = publish.save(built, publish.describe("demo", networks, layout).dump(), directory)
    return ExportedGraph(networks, layout, onnx.load(file), file, load_model(file, "demo", 1, (1, 3)))


def alone(checkpoint: Checkpoint) -> Networks:
    return Networks.ensemble([checkpoint])


def pool(schema: Schema = EVERY_KIND, qr_weight: float = 0.3, **changes: Any) -> TrainedModel:
    """A pool of a CR and a QR network with the same rows."""
    cr, qr = (shaken(schema, config(head=head, **changes), seed) for seed, head in enumerate(("cr", "qr")))
    return TrainedModel((cr, qr), (1.0 - qr_weight, qr_weight), {"nll": 1.25, "logit_variance_p999": 0.5})


# At both ends of the range and inside it.
ATOMS = (0.0, 1.25, 3.0)
# Far from the identity, and steepest where most of the CDF's values are.
MAP = tuple(
    float(np.float32(u)) for u in (np.linspace(0.0, 1.0, PIECES + 1) ** 1.6 * 0.9 + np.linspace(0, 0.1, PIECES + 1))
)


def with_atoms(temperature: float = 1.0, seed: int = 0, **changes: Any) -> Checkpoint:
    """A network whose target has atoms at both ends and in the middle, with a calibration map and, for CR, a
    temperature."""
    checkpoint = shaken(EVERY_KIND, config(**changes), seed, random_table(EVERY_KIND, atoms=ATOMS))
    checkpoint.model.head.calibration = Calibration(temperature, MAP)
    return checkpoint


def ensemble(members: Sequence[int], **changes: Any) -> Networks:
    """An ensemble with one member per seed and the same rows."""
    return Networks.ensemble([shaken(EVERY_KIND, config(method="deterministic", **changes), seed) for seed in members])


def some_rows(checkpoint: Checkpoint, count: int = 200, seed: int = 0) -> dict[str, Array]:
    """Plausible rows followed by extreme ones."""
    plausible, extreme = rows.plausible(checkpoint.encoding, count, seed), rows.extreme(checkpoint.encoding, seed)
    return {
        name: np.concatenate([rows.fed({name: part[name]})[name] for part in (plausible, extreme)])
        for name in plausible
    }
