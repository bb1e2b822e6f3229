"""Small real ONNX models with full `ghostless.*` metadata, built without torch.

A model gathers id embeddings, runs an MLP and predicts a distribution on cells between knots. The graph computes every
output from it, so that the server's responses can be compared with the graph's outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from ghostless.contract import metadata
from ghostless.contract.metadata import FeatureSpec, FeatureType, ModelMetadata, TargetSpec

_ONNX_TYPES = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT, "string": TensorProto.STRING}
LOW, HIGH = 0.0, 3.0
# Share of the variance that an unknown id adds to the epistemic part.
UNKNOWN_SHARE = 0.3

SMALL_FEATURES = (
    FeatureSpec("user_id", "int64", "context", vocabulary=50),
    FeatureSpec("hour", "float32", "context"),
    FeatureSpec("item_id", "int64", "candidate", vocabulary=200),
    FeatureSpec("duration", "float32", "candidate"),
)


@dataclass(frozen=True)
class Recipe:
    """What kind of model to build."""

    head: metadata.Head = "cr"
    features: tuple[FeatureSpec, ...] = SMALL_FEATURES
    embedding: int = 4
    hidden: tuple[int, ...] = (8,)
    cells: int = 10
    levels: tuple[float, ...] = (0.1, 0.25, 0.5, 0.75, 0.9)
    outputs: tuple[str, ...] = ()
    seed: int = 0
    # Multiplies the mean; inf or nan gives a model with non-finite outputs.
    mean_factor: float = 1.0
    # Repeats the MLP's square layers, to make a run slow.
    repeats: int = 0


# A histogram model over two ids and two numbers.
SMALL = Recipe()
# As costly as a trained model of the default size: about 0.7 ms for 256 rows on one thread.
REALISTIC = Recipe(
    head="qr",
    features=(
        FeatureSpec("user_id", "int64", "context", vocabulary=20_000),
        FeatureSpec("item_id", "int64", "candidate", vocabulary=50_000),
        FeatureSpec("duration", "float32", "candidate"),
    ),
    embedding=48,
    hidden=(256, 128, 64),
    cells=16,
    levels=(0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95),
)
QR_OUTPUTS = (
    metadata.MEAN,
    metadata.QUANTILES,
    metadata.BINS,
    metadata.CDF,
    metadata.ALEATORIC,
    metadata.EPISTEMIC,
    metadata.EPISTEMIC_CANDIDATE,
    metadata.EPISTEMIC_LAST_LAYER,
    metadata.LOGIT_VARIANCE,
)
CR_OUTPUTS = (
    *QR_OUTPUTS,
    metadata.CATEGORICAL_ALEATORIC,
    metadata.CATEGORICAL_EPISTEMIC,
    metadata.CATEGORICAL_EPISTEMIC_DELTA,
)


@dataclass
class _Graph:
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def const(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, to: str = "", domain: str = "", **attributes: object) -> str:
        name = to or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def dot(self, rows: str, weights: npt.ArrayLike, to: str = "") -> str:
        """Each row's weighted sum; ONNX Runtime's MatMul with a vector costs ten times as much."""
        axis = self.const([-1], np.int64)
        return self.op("ReduceSum", self.op("Mul", rows, self.const(weights)), axis, keepdims=0, to=to)


def metadata_of(recipe: Recipe, name: str = "demo") -> ModelMetadata:
    knots = tuple(float(x) for x in np.linspace(LOW, HIGH, recipe.cells + 1, dtype=np.float32))
    return ModelMetadata(
        name=name,
        head=recipe.head,
        method="vbll",
        features=recipe.features,
        target=TargetSpec("watch_ratio", "1", LOW, HIGH),
        levels=recipe.levels,
        edges=knots if recipe.head == "cr" else knots[::2],
        knots=knots,
        data_fingerprint="test",
        tools={"onnx": onnx.__version__},
    )


def build(recipe: Recipe = SMALL, name: str = "demo") -> onnx.ModelProto:
    """The model as a proto; the same seed gives the same weights."""
    random = np.random.default_rng(recipe.seed)
    graph = _Graph()
    rows = _id_rows(graph, recipe)
    raw = _raw_vector(graph, recipe, rows, random)
    phi = _mlp(graph, recipe, raw, random)
    width = (recipe.hidden[-1] if recipe.hidden else 0) or 1
    weights = random.normal(0, 1.0 / np.sqrt(width), (width, recipe.cells))
    logits = graph.op("MatMul", phi, graph.const(weights))
    squares = graph.op("Mul", phi, phi)
    s2 = graph.dot(squares, np.full(width, 0.05), to=metadata.LOGIT_VARIANCE)
    _outputs(graph, recipe, logits, s2, _variance_shares(graph, recipe, rows))

    wanted = recipe.outputs or (CR_OUTPUTS if recipe.head == "cr" else QR_OUTPUTS)
    described = metadata_of(recipe, name)
    shapes = {
        metadata.QUANTILES: len(described.levels),
        metadata.BINS: len(described.edges) - 1,
        metadata.CDF: len(described.knots),
    }
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            name,
            [helper.make_tensor_value_info(f.name, _ONNX_TYPES[f.type], ["n"]) for f in recipe.features],
            [
                helper.make_tensor_value_info(o, TensorProto.FLOAT, ["n", shapes[o]] if o in shapes else ["n"])
                for o in wanted
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)],
        ir_version=9,
    )
    helper.set_model_props(model, described.dump())
    onnx.checker.check_model(model)
    return model


def write_version(root: Path, version: int, recipe: Recipe = SMALL, name: str = "demo") -> Path:
    """Write the model to NAME/VERSION/model.onnx in a repository at `root`, without the atomicity of a real export."""
    directory = root / name / str(version)
    directory.mkdir(parents=True)
    onnx.save(build(recipe, name), directory / "model.onnx")
    return directory


def with_string_ids(features: Sequence[FeatureSpec] = SMALL_FEATURES) -> tuple[FeatureSpec, ...]:
    """The same features, with ids as strings "id0", "id1", ..."""
    kinds: dict[str, FeatureType] = {"int64": "string"}
    return tuple(FeatureSpec(f.name, kinds.get(f.type, f.type), f.role, f.vocabulary) for f in features)


def _id_rows(graph: _Graph, recipe: Recipe) -> dict[str, str]:
    """Each id feature's row in its tables, [n]; the last is that of unknown ids."""
    rows = {}
    for feature in recipe.features:
        size = feature.vocabulary
        if feature.type == "string":
            rows[feature.name] = graph.op(
                "LabelEncoder",
                feature.name,
                domain="ai.onnx.ml",
                keys_strings=[f"id{i}" for i in range(size)],
                values_int64s=list(range(size)),
                default_int64=size,
            )
        elif feature.type == "int64":
            known = graph.op(
                "And",
                graph.op("GreaterOrEqual", feature.name, graph.const(0, np.int64)),
                graph.op("Less", feature.name, graph.const(size, np.int64)),
            )
            rows[feature.name] = graph.op("Where", known, feature.name, graph.const(size, np.int64))
    return rows


def _raw_vector(graph: _Graph, recipe: Recipe, rows: dict[str, str], random: np.random.Generator) -> str:
    """Embeddings and numbers side by side, [n, raw]."""
    parts = []
    for feature in recipe.features:
        if feature.type == "float32":
            column = graph.op("Unsqueeze", feature.name, graph.const([1], np.int64))
            # No finite input may overflow later in the graph.
            parts.append(graph.op("Clip", column, graph.const(-100.0), graph.const(100.0)))
            continue
        table = random.normal(0, 1, (feature.vocabulary + 1, recipe.embedding))
        parts.append(graph.op("Gather", graph.const(table), rows[feature.name], axis=0))
    return graph.op("Concat", *parts, axis=1)


def _variance_shares(graph: _Graph, recipe: Recipe, rows: dict[str, str]) -> tuple[str, str]:
    """Share of the variance due to ignorance about ids: about all ids, and about the candidates' ids alone, [n] each.

    The share of an id is small if it is known, and UNKNOWN_SHARE if not.
    """
    random = np.random.default_rng([recipe.seed, 1])
    shares: dict[str, list[str]] = {"context": [graph.const([0.0])], "candidate": [graph.const([0.0])]}
    for feature in recipe.features:
        if feature.name in rows:
            table = np.append(random.uniform(0.0, 0.05, feature.vocabulary), UNKNOWN_SHARE)
            shares[feature.role].append(graph.op("Gather", graph.const(table), rows[feature.name], axis=0))
    candidate = graph.op("Sum", *shares["candidate"])
    return graph.op("Sum", candidate, *shares["context"]), candidate


def _mlp(graph: _Graph, recipe: Recipe, vector: str, random: np.random.Generator) -> str:
    width = sum(1 if f.type == "float32" else recipe.embedding for f in recipe.features)
    for size in recipe.hidden:
        weights = graph.const(random.normal(0, 1 / np.sqrt(width), (width, size)))
        vector = graph.op("Relu", graph.op("Gemm", vector, weights, graph.const(random.normal(0, 0.1, size))))
        width = size
    for _ in range(recipe.repeats):
        square = graph.const(random.normal(0, 1 / np.sqrt(width), (width, width)))
        vector = graph.op("Tanh", graph.op("MatMul", vector, square))
    return vector


def _outputs(graph: _Graph, recipe: Recipe, logits: str, s2: str, shares: tuple[str, str]) -> None:
    """Every output from the cells' probabilities p = softmax(logits / sqrt(1 + pi/8 s^2)), [n, cells]."""
    described = metadata_of(recipe)
    knots = np.asarray(described.knots, np.float32)
    widths, centres = np.diff(knots), (knots[:-1] + knots[1:]) / 2
    scale = graph.op("Sqrt", graph.op("Add", graph.op("Mul", s2, graph.const(np.pi / 8)), graph.const(1.0)))
    column = graph.const([1], np.int64)
    p = graph.op("Softmax", graph.op("Div", logits, graph.op("Unsqueeze", scale, column)), axis=1)

    mean = graph.dot(p, centres)
    graph.op("Mul", mean, graph.const(recipe.mean_factor), to=metadata.MEAN)
    below = np.triu(np.ones((recipe.cells, recipe.cells)))
    cumulative = graph.op("MatMul", p, graph.const(below))
    inner = graph.op("Slice", cumulative, graph.const([0], np.int64), graph.const([-1], np.int64), column)
    zero = graph.op("Mul", graph.op("Unsqueeze", mean, column), graph.const(0.0))
    one = graph.op("Add", zero, graph.const(1.0))
    clipped = graph.op("Clip", inner, graph.const(0.0), graph.const(1.0))
    graph.op("Concat", zero, clipped, one, axis=1, to=metadata.CDF)

    # The inverse of a piecewise-linear CDF without a search: low + sum_k width_k clip((level - F_k) / p_k, 0, 1).
    start = graph.op("Concat", zero, clipped, axis=1)
    levels = graph.const(np.asarray(recipe.levels).reshape(1, -1, 1))
    share = graph.op(
        "Div",
        graph.op("Sub", levels, graph.op("Unsqueeze", start, column)),
        graph.op("Unsqueeze", graph.op("Max", p, graph.const(1e-9)), column),
    )
    filled = graph.op("Clip", share, graph.const(0.0), graph.const(1.0))
    graph.op("Add", graph.dot(filled, widths), graph.const(LOW), to=metadata.QUANTILES)

    group = 1 if recipe.head == "cr" else 2
    cells_of_bin = np.kron(np.eye(recipe.cells // group), np.ones((group, 1)))
    graph.op("MatMul", p, graph.const(cells_of_bin), to=metadata.BINS)

    second = graph.dot(p, centres**2 + widths**2 / 12)
    variance = graph.op("Sub", second, graph.op("Mul", mean, mean))
    squared = graph.op("Mul", p, p)
    last_layer = graph.op("Mul", s2, graph.dot(squared, centres**2), to=metadata.EPISTEMIC_LAST_LAYER)
    _epistemic(graph, variance, last_layer, shares[1], to=metadata.EPISTEMIC_CANDIDATE)
    _epistemic(graph, variance, last_layer, shares[0], to=metadata.EPISTEMIC)
    graph.op("Sub", variance, metadata.EPISTEMIC, to=metadata.ALEATORIC)
    gini = graph.op("Sub", graph.const(1.0), graph.dot(squared, np.ones(recipe.cells)))
    part = graph.op("Div", metadata.EPISTEMIC, variance)
    graph.op("Mul", gini, part, to=metadata.CATEGORICAL_EPISTEMIC)
    graph.op("Sub", gini, metadata.CATEGORICAL_EPISTEMIC, to=metadata.CATEGORICAL_ALEATORIC)
    graph.op("Mul", s2, graph.dot(squared, np.ones(recipe.cells)), to=metadata.CATEGORICAL_EPISTEMIC_DELTA)


def _epistemic(graph: _Graph, total: str, last_layer: str, share: str, to: str) -> None:
    """rho V + l R / (l + R) with R = (1 - rho) V (DESIGN section 2)."""
    known = graph.op("Mul", share, total)
    rest = graph.op("Sub", total, known)
    both = graph.op("Add", graph.op("Add", last_layer, rest), graph.const(1e-12))
    graph.op("Add", known, graph.op("Div", graph.op("Mul", last_layer, rest), both), to=to)
