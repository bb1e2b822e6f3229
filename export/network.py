"""The graph's middle part: one trained network's inputs and hidden layers as nodes.

Spectral norm is folded into the weights, and so are the scales that phi is wanted in (last_layer.py); dropout is gone.
"""

import numpy as np

from export import features
from export.builder import FLOAT, FLOAT16, Array, GraphBuilder
from export.last_layer import FoldedScales, phi_inputs, phi_scales
from learning.backbone import FARTHEST, SpectralLinear
from learning.checkpoint import Checkpoint
from learning.model import Model


def carried_inputs(g: GraphBuilder, checkpoint: Checkpoint, x: str) -> str | None:
    """The part of the input vector that phi carries, [n, ..], or None."""
    every = features.input_columns(checkpoint.model, checkpoint.encoding)
    carried = phi_inputs(checkpoint)
    if carried == every:
        return x
    places = [every.index(column) for column in carried]
    return g.node("Gather", [x, g.constant("phi/columns", places, np.int64)], "phi/carried", axis=1) if places else None


def input_vector(g: GraphBuilder, checkpoint: Checkpoint, inputs: dict[str, str], dtype: type) -> str:
    """Raw features -> the input vector [n, columns]: all embeddings, novelty columns and numbers side by side, times
    their scales."""
    encoding, towers = checkpoint.encoding, checkpoint.model.towers
    scales = FoldedScales.of(checkpoint, dtype).by_feature(checkpoint)
    parts = []
    for feature in encoding.schema.features:
        name, value, scale = feature.name, inputs[feature.name], scales[feature.name]
        if feature.kind == "id":
            table: Array = features.id_table(checkpoint.model, name, scale).astype(dtype, copy=False)
            parts.append(features.gather_id(g, value, feature, encoding.vocabularies[name], table))
        elif feature.kind == "bucket":
            table = towers.table(name).detach().numpy() * scale
            parts.append(_as(g, features.embed_bucket(g, value, name, encoding.edges[name], table), dtype))
        else:
            mean, deviation = encoding.means[name], encoding.deviations[name]
            number = features.standardise(g, value, name, mean, deviation, FARTHEST, float(scale[0]))
            parts.append(_as(g, number, dtype))
    return parts[0] if len(parts) == 1 else g.node("Concat", parts, "x", axis=-1)


def _as(g: GraphBuilder, value: str, dtype: type) -> str:
    return value if dtype == np.float32 else g.node("Cast", [value], to=FLOAT16)


def hidden_layers(model: Model, columns: list[tuple[str, int]]) -> list[tuple[Array, Array]]:
    """Folded (weight [inputs, outputs], bias) of every layer; the first takes the input vector, novelty unseen."""
    layers: list[tuple[Array, Array]] = []
    for layer in model.backbone.layers:
        assert isinstance(layer, SpectralLinear)
        weight = layer.folded().numpy().T
        if not layers:
            spread = np.zeros((len(columns), weight.shape[1]), np.float32)
            for row, (kind, index) in enumerate(columns):
                if kind == "x":
                    spread[row] = weight[index]
            weight = spread
        layers.append((weight, layer.bias.detach().numpy()))
    return layers


def backbone(g: GraphBuilder, checkpoint: Checkpoint, x: str, masks: list[Array] | None, dtype: type) -> str:
    """Input vector [n, columns] -> f(x) [n, hidden], both times their scales.

    masks: MC-dropout's, one [S, 1, width] for each layer but the input; values become [S, n, width].
    """
    model = checkpoint.model
    residual = model.backbone.kind == "spectral-residual"
    h = x
    unscaled = hidden_layers(model, features.input_columns(model, checkpoint.encoding))
    layers = FoldedScales.of(checkpoint, dtype).layers(unscaled, residual)
    for index, (weight, bias) in enumerate(layers):
        weight, bias = weight.astype(dtype), bias.astype(dtype)
        if masks is not None and index:
            product = g.node("MatMul", [h, g.constant(f"layer{index}/weight", weight, dtype)])
            branch = g.node("Add", [product, g.constant(f"layer{index}/bias", bias, dtype)], f"layer{index}")
        else:
            branch = g.linear(h, weight, bias, f"layer{index}")
        if index or not residual:
            branch = g.node("Relu", [branch], f"layer{index}/relu")
            if masks is not None:
                branch = g.node("Mul", [branch, g.constant(f"layer{index}/mask", masks[index], dtype)])
        h = g.node("Add", [h, branch], f"layer{index}/residual") if index and residual else branch
    return h


# One uniform number decides for a unit in two passes, by its integer and its fractional part, each of 12 bits: drawing
# is half of what MC-dropout costs, even so.
_DECISIONS = 4096.0


def dropout_passes(g: GraphBuilder, checkpoint: Checkpoint, x: str, passes: int, dtype: type) -> list[str]:
    """Input vector [n, columns] -> f(x) [n, hidden] of each stochastic pass: every row and pass drops units of its own.

    Pass by pass, not stacked, so that what one pass multiplies is small. The first layer has no mask before it and is
    computed once. Kept units are scaled in the weights, since relu(a z) = a relu(z). Phi itself is not: such a network
    has no posterior.
    """
    model = checkpoint.model
    residual = model.backbone.kind == "spectral-residual"
    rate = checkpoint.model_config.dropout
    layers = []
    for index, parts in enumerate(hidden_layers(model, features.input_columns(model, checkpoint.encoding))):
        scale = 1.0 / (1.0 - rate) if index or not residual else 1.0
        layers.append([g.constant(f"layer{index}/part", (scale * part).astype(dtype), dtype) for part in parts])

    def dropped(pair: list[str]) -> list[str]:
        # Of ONNX Runtime's ways to draw (Dropout, Bernoulli, this) the fastest.
        uniform = g.node("RandomUniformLike", pair[:1], "drop/uniform", dtype=FLOAT, low=0.0, high=_DECISIONS)
        drops = [g.node("Less", [uniform, g.constant("drop/below", rate * _DECISIONS)], "drop/mask")]
        if len(pair) > 1:
            fraction = g.node("Sub", [uniform, g.node("Floor", [uniform])], "drop/fraction")
            drops.append(g.node("Less", [fraction, g.constant("drop/rate", rate)], "drop/mask"))
        nothing = g.constant("drop/zero", 0.0, dtype)
        return [g.node("Where", [drop, nothing, h], "drop/kept") for drop, h in zip(drops, pair, strict=True)]

    first = g.node("Gemm", [x, *layers[0]], "layer0")
    first = first if residual else g.node("Relu", [first], "layer0/relu")
    drawn: list[str] = []
    while len(drawn) < passes:
        pair = [first] * min(2, passes - len(drawn))
        pair = pair if residual else dropped(pair)
        for index, constants in enumerate(layers[1:], 1):
            branches = dropped(
                [g.node("Relu", [g.node("Gemm", [h, *constants], f"layer{index}")], f"layer{index}/relu") for h in pair]
            )
            if residual:
                branches = [
                    g.node("Add", [h, branch], f"layer{index}/residual")
                    for h, branch in zip(pair, branches, strict=True)
                ]
            pair = branches
        drawn += pair
    return drawn


def phi_parts(
    g: GraphBuilder,
    checkpoint: Checkpoint,
    inputs: dict[str, str],
    masks: list[Array] | None = None,
    dtype: type = np.float32,
) -> tuple[str, str | None]:
    """Raw features -> f(x) and the part of the input vector that phi carries beside it, both float32 and scaled.

    In half precision the two are widened here: the head squares small numbers and subtracts near-equal
    ones, which float16 can't.
    """
    x = input_vector(g, checkpoint, inputs, dtype)
    f = backbone(g, checkpoint, x, masks, dtype)
    if dtype == np.float32:
        return f, carried_inputs(g, checkpoint, x)
    f, carried = g.node("Cast", [f], to=FLOAT), carried_inputs(g, checkpoint, g.node("Cast", [x], to=FLOAT))
    scales = phi_scales(checkpoint)
    if (scales != 1.0).any():
        hidden, beside = np.split(scales, [checkpoint.model.backbone.width])
        f = g.node("Mul", [f, g.constant("phi/scales", hidden)], "phi/hidden")
        if carried is not None:
            carried = g.node("Mul", [carried, g.constant("phi/scales", beside)], "phi/beside")
    return f, carried
