"""The graph's middle part: one trained network's inputs and hidden layers as nodes.

Spectral norm and the cross layer's gain are folded into the weights. There is no dropout, except for MC-dropout.
"""

import numpy as np

from export import features
from export.builder import FLOAT, FLOAT16, Array, GraphBuilder, Value
from learning.backbone import CROSS_GAIN, LEAKY_SLOPE, SpectralLinear
from learning.checkpoint import Checkpoint
from learning.config import ActivationName


def expanded_columns(checkpoint: Checkpoint) -> list[int]:
    """Position of each column of `expand` in the backbone's inputs, which are x and then the cross layer of x."""
    columns = features.input_columns(checkpoint.model, checkpoint.encoding)
    if checkpoint.model.backbone.cross is None:
        return columns
    return columns + [checkpoint.model.towers.width + index for index in columns]


def input_vector(g: GraphBuilder, checkpoint: Checkpoint, inputs: dict[str, Value]) -> Value:
    """Raw features -> the input vector [n, columns]: embeddings and numbers side by side, in the order of
    `features.input_columns`."""
    encoding, towers = checkpoint.encoding, checkpoint.model.towers
    parts = []
    for feature in encoding.schema.features:
        name = feature.name
        if feature.is_coded:
            table: Array = towers.table(name).detach().numpy()
            parts.append(features.gather_id(g, inputs[name], feature, encoding.vocabularies[name], table))
    groups = features.number_groups(encoding)
    for group in groups:
        names = [feature.name for feature in group]
        tables = [
            features.NumberTable.of(
                encoding.edges[name],
                encoding.knots[name],
                towers.table(name).detach().numpy(),
                towers.ramp_weight(name).detach().numpy(),
            )
            for name in names
        ]
        parts.append(features.read_numbers(g, [inputs[name] for name in names], tables))
    names = [feature.name for group in groups for feature in group]
    if names:
        centres, spreads = ([values[name] for name in names] for values in (encoding.centres, encoding.spreads))
        linear = [name in encoding.linear for name in names]
        parts.append(features.bend(g, [inputs[name] for name in names], centres, spreads, linear))
    return parts[0] if len(parts) == 1 else g.node("Concat", parts, "x", axis=-1)


def expand(g: GraphBuilder, checkpoint: Checkpoint, x: Value) -> Value:
    """The input vector, followed by the cross layer's output if the backbone has one."""
    cross = checkpoint.model.backbone.cross
    if cross is None:
        return x
    columns = features.input_columns(checkpoint.model, checkpoint.encoding)
    factors = [factor.detach().numpy() for factor in cross.factors]
    # The gain is folded into the last factor and the bias; rows and columns are in the graph's order.
    gates = [factors[0][columns], *factors[1:]]
    last = CROSS_GAIN * gates[-1][:, columns]
    bias = CROSS_GAIN * cross.bias.detach().numpy()[columns]
    gate = x
    for weight in gates[:-1]:
        gate = g.node("MatMul", [gate, g.constant("cross/factor", weight)], "cross/inner")
    gate = g.linear(gate, last, bias, "cross/gate")
    return g.node("Concat", [x, g.node("Mul", [x, gate], "cross")], "expanded", axis=-1)


def hidden_layers(checkpoint: Checkpoint) -> list[tuple[Array, Array]]:
    """(weight [inputs, outputs], bias) of every layer, spectral norm folded in; the first takes the expanded inputs."""
    model = checkpoint.model
    layers: list[tuple[Array, Array]] = []
    for layer in model.backbone.layers:
        served = layer.folded() if isinstance(layer, SpectralLinear) else layer.get_parameter("weight").detach()
        weight: Array = served.numpy().T
        if not layers:
            weight = weight[expanded_columns(checkpoint)]
        layers.append((weight, layer.get_parameter("bias").detach().numpy()))
    return layers


def activation(g: GraphBuilder, value: Value, name: ActivationName, output: str) -> Value:
    """learning.backbone.activate."""
    match name:
        case "silu":
            # ONNX Runtime fuses the two nodes.
            return g.node("Mul", [value, g.node("Sigmoid", [value], f"{output}/gate")], output)
        case "leaky":
            return g.node("LeakyRelu", [value], output, alpha=LEAKY_SLOPE)
        case "relu":
            return g.node("Relu", [value], output)


def backbone(g: GraphBuilder, checkpoint: Checkpoint, expanded: Value, masks: list[Array] | None, dtype: type) -> Value:
    """Expanded inputs [n, columns] -> f [n, hidden].

    masks: those of MC-dropout, one [S, 1, width] for each layer except the input; values become [S, n, width].
    """
    network = checkpoint.model.backbone
    h = expanded
    for index, (weight, bias) in enumerate(hidden_layers(checkpoint)):
        weight, bias = weight.astype(dtype), bias.astype(dtype)
        if masks is not None and index:
            product = g.node("MatMul", [h, g.constant(f"layer{index}/weight", weight, dtype)])
            branch = g.node("Add", [product, g.constant(f"layer{index}/bias", bias, dtype)], f"layer{index}")
        else:
            branch = g.linear(h, weight, bias, f"layer{index}")
        if index or not network.residual:
            branch = activation(g, branch, network.activation, f"layer{index}/active")
            if masks is not None:
                branch = g.node("Mul", [branch, g.constant(f"layer{index}/mask", masks[index], dtype)])
        h = g.node("Add", [h, branch], f"layer{index}/residual") if index and network.residual else branch
    return h


# One uniform number decides about a unit in two passes, by its integer part and its fractional part, 12 bits each. Even
# so, drawing is half of the cost of MC-dropout.
_DECISIONS = 4096.0


def dropout_passes(g: GraphBuilder, checkpoint: Checkpoint, expanded: Value, passes: int, dtype: type) -> list[Value]:
    """Expanded inputs -> f [n, hidden] of each stochastic pass: units are dropped independently for every row and pass.

    Passes are computed one by one, not stacked, so that each product is small. The first layer has no mask before it
    and is computed once. Units that are not dropped are scaled in the weights of the following layer, so f itself is
    returned unscaled. The branches of a residual network are scaled by a separate node.
    """
    network = checkpoint.model.backbone
    rate = checkpoint.model_config.dropout
    scale = 1.0 / (1.0 - rate)
    layers = []
    for index, (weight, bias) in enumerate(hidden_layers(checkpoint)):
        scaled = weight * scale if index and not network.residual else weight
        layers.append([g.constant(f"layer{index}/part", part.astype(dtype), dtype) for part in (scaled, bias)])

    def dropped(pair: list[Value]) -> list[Value]:
        # The fastest of ONNX Runtime's operators that can draw a mask (Dropout, Bernoulli, this).
        uniform = g.node("RandomUniformLike", pair[:1], "drop/uniform", dtype=FLOAT, low=0.0, high=_DECISIONS)
        drops = [g.node("Less", [uniform, g.constant("drop/below", rate * _DECISIONS)], "drop/mask")]
        if len(pair) > 1:
            fraction = g.node("Sub", [uniform, g.node("Floor", [uniform])], "drop/fraction")
            drops.append(g.node("Less", [fraction, g.constant("drop/rate", rate)], "drop/mask"))
        nothing = g.constant("drop/zero", 0.0, dtype)
        return [g.node("Where", [drop, nothing, h], "drop/kept") for drop, h in zip(drops, pair, strict=True)]

    def active(value: Value, index: int) -> Value:
        return activation(g, value, network.activation, f"layer{index}/active")

    first = g.node("Gemm", [expanded, *layers[0]], "layer0")
    first = first if network.residual else active(first, 0)
    drawn: list[Value] = []
    while len(drawn) < passes:
        pair = [first] * min(2, passes - len(drawn))
        pair = pair if network.residual else dropped(pair)
        for index, constants in enumerate(layers[1:], 1):
            branches = dropped([active(g.node("Gemm", [h, *constants], f"layer{index}"), index) for h in pair])
            if network.residual:
                kept = g.constant("drop/scale", scale, dtype)
                branches = [g.node("Mul", [branch, kept], "drop/scaled") for branch in branches]
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
    inputs: dict[str, Value],
    masks: list[Array] | None = None,
    dtype: type = np.float32,
) -> tuple[Value, Value | None]:
    """Raw features -> f and the expanded inputs that phi contains besides f, both float32.

    Only the hidden layers have half precision: tables in float16 would change phi more than these layers do, the cross
    layer's gain makes its products large, and the head squares small numbers and subtracts near-equal ones.
    """
    expanded = expand(g, checkpoint, input_vector(g, checkpoint, inputs))
    f = backbone(g, checkpoint, narrowed(g, expanded, dtype), masks, dtype)
    return widened(g, f, dtype), expanded if checkpoint.model.backbone.raw else None


def narrowed(g: GraphBuilder, value: Value, dtype: type) -> Value:
    """A float32 value in the precision of the hidden layers."""
    return value if dtype == np.float32 else g.node("Cast", [value], to=FLOAT16)


def widened(g: GraphBuilder, value: Value, dtype: type) -> Value:
    """An output of the hidden layers as float32."""
    return value if dtype == np.float32 else g.node("Cast", [value], to=FLOAT)
