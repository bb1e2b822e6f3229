"""A trained model, or several, as one ONNX graph: raw features in, whole predictive distributions out.

Five methods answer through the same contract: `vbll`, its `deterministic` twin, an `ensemble` of M networks fused into
one graph, `mc-dropout`, which draws masks anew for every row and pass, and `mc-dropout-fixed` with S masks that were
drawn once and that all rows share: cheaper, and its answers repeat, but then it is S fixed subnetworks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from export import cdf_nodes, emg_nodes, features, histogram_nodes, network, pool_nodes, posterior_nodes, quantile_nodes
from export.builder import FLOAT, Array, GraphBuilder
from export.cdf_nodes import CdfColumns
from export.errors import OptionError
from export.last_layer import LastLayer, last_layer
from export.options import Layout
from export.posterior_nodes import LastLayerNodes
from export.quantile_nodes import QuantileBasis
from ghostless.contract import metadata
from ghostless.contract.metadata import Head, Method
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.trained import TrainedModel


@dataclass(frozen=True)
class Networks:
    """What goes into one graph: one checkpoint, the members of an ensemble, one with fixed dropout masks [S, 1, width]
    or with `passes` whose masks the graph draws, or a weighted pool of a CR and a QR network."""

    checkpoints: tuple[Checkpoint, ...]
    masks: tuple[Array, ...] = ()
    # Of a pool, CR first and then QR; they sum to 1.
    weights: tuple[float, ...] = ()
    passes: int = 0

    @property
    def first(self) -> Checkpoint:
        return self.checkpoints[0]

    @property
    def held_out(self) -> Table | None:
        """Rows that no network of the graph was trained on, if the run kept any. Members of an ensemble have splits
        of their own, and one's held-out rows are another's training rows."""
        return self.first.calibration if len(self.checkpoints) == 1 or self.weights else None

    @property
    def head(self) -> Head:
        return "pool" if self.weights else self.first.model_config.head

    @property
    def members(self) -> int:
        """Networks that are averaged; 1 for a single posterior."""
        return self.masks[0].shape[0] if self.masks else self.passes or len(self.checkpoints)

    @property
    def method(self) -> Method:
        if self.masks or self.passes:
            return "mc-dropout" if self.passes else "mc-dropout-fixed"
        if len(self.checkpoints) > 1 and not self.weights:
            return "ensemble"
        # Only what is served gets here, and that is one of the two.
        return "vbll" if self.first.model_config.method == "vbll" else "deterministic"

    @classmethod
    def trained(cls, model: TrainedModel) -> "Networks":
        """What a run of `ghostless train` left: one network, or the two of a pool."""
        first = replace(model.first, metrics=model.metrics)
        if len(model.checkpoints) == 1:
            return cls((first,))
        return cls((first, *model.checkpoints[1:]), weights=model.weights)

    @classmethod
    def ensemble(cls, checkpoints: Sequence[Checkpoint]) -> "Networks":
        """M members that were trained alike, from different seeds."""
        first = checkpoints[0]
        for other in checkpoints[1:]:
            if other.schema != first.schema or other.model_config != first.model_config:
                raise OptionError("members of an ensemble must share schema and model options")
        if len(checkpoints) > 1 and first.model_config.method != "deterministic":
            raise OptionError(
                "members of an ensemble are deterministic networks: train them with --method deterministic"
            )
        return cls(tuple(checkpoints))

    @classmethod
    def mc_dropout(cls, checkpoint: Checkpoint, passes: int) -> "Networks":
        """S stochastic passes of a network that was trained with dropout."""
        _dropout_rate(checkpoint, passes)
        return cls((checkpoint,), passes=passes)

    @classmethod
    def fixed_dropout(cls, checkpoint: Checkpoint, samples: int, seed: int = 0) -> "Networks":
        """S thinned networks of one that was trained with dropout."""
        rate = _dropout_rate(checkpoint, samples)
        generator = np.random.default_rng(seed)
        widths = [layer.get_parameter("bias").shape[0] for layer in checkpoint.model.backbone.layers]
        keep = [generator.random((samples, 1, width)) >= rate for width in widths]
        return cls((checkpoint,), tuple((kept / (1.0 - rate)).astype(np.float32) for kept in keep))


def _dropout_rate(checkpoint: Checkpoint, samples: int) -> float:
    rate = checkpoint.model_config.dropout
    if checkpoint.model_config.method != "deterministic" or not rate:
        raise OptionError("MC-dropout needs a deterministic network that was trained with dropout")
    if samples < 2:
        raise OptionError(f"MC-dropout averages 2 samples or more, not {samples}")
    return rate


def build(networks: Networks, layout: Layout, precision: str) -> GraphBuilder:
    """The whole graph, ready to be written."""
    g = GraphBuilder()
    schema = networks.first.schema
    inputs = {feature.name: g.input(feature.name, feature.type) for feature in schema.features}
    dtype = np.dtype(precision.replace("fp", "float")).type
    columns, values = (_pool if networks.weights else _one_head)(g, networks, inputs, layout, dtype)
    values |= {metadata.CDF: columns.cdf, metadata.BINS: columns.bins}
    unknown = features.unknown_ids(g, networks.first.encoding)
    if unknown is not None:
        values[metadata.UNKNOWN_IDS] = unknown
    if metadata.QUANTILES in layout.outputs:
        values[metadata.QUANTILES] = cdf_nodes.quantiles(g, columns.mass, columns.low, layout)
    widths = {
        metadata.QUANTILES: len(layout.levels),
        metadata.BINS: len(layout.edges) - 1,
        metadata.CDF: len(layout.knots),
        metadata.DENSITY: len(layout.grid),
        metadata.EMG_DENSITY: len(layout.grid),
        metadata.UNKNOWN_IDS: len(networks.first.schema.id_names),
    }
    exposed: dict[str, str] = {}
    for name in layout.outputs:
        # A value that is two outputs (bins and masses, a twin's zeros) is known by its first name from then on.
        g.output(name, exposed.get(values[name], values[name]), widths.get(name))
        exposed.setdefault(values[name], name)
    g.drop_unused()
    return g


def _one_head(
    g: GraphBuilder, networks: Networks, inputs: dict[str, str], layout: Layout, dtype: type
) -> tuple[CdfColumns, dict[str, str]]:
    """The distribution and the other outputs of one network, or of several of one head."""
    config = networks.first.model_config
    basis = QuantileBasis.of(config) if config.head == "qr" else None
    matrix = basis.matrix if basis else np.eye(config.bins)
    phi, last = _last_layer(g, networks, inputs, matrix, dtype)
    scales = networks.first.model.head.posterior.scales.detach().numpy()
    values: dict[str, str] = {}
    if basis is not None:
        parts = quantile_nodes.components(g, last, scales, basis)
        columns = quantile_nodes.read_distribution(g, parts, basis.groups, networks.members, layout)
        if networks.members == 1:
            values = quantile_nodes.posterior_outputs(g, parts, scales)
        else:
            values = quantile_nodes.member_outputs(g, parts)
        if metadata.DENSITY in layout.outputs:
            values[metadata.DENSITY] = quantile_nodes.density(g, parts, basis.groups, networks.members, layout)
        if metadata.EMG_DENSITY in layout.outputs and parts.s2 is not None:
            values[metadata.EMG_DENSITY] = emg_nodes.density(g, phi, parts.s2, networks.first, layout)
    else:
        logits, s2 = last.separate(g)
        p = average = histogram_nodes.probabilities(g, logits, s2)
        if networks.members == 1:
            values = histogram_nodes.posterior_outputs(g, p, s2, layout)
        else:
            average = g.mean(p, [0], "members/average")
            values = histogram_nodes.member_outputs(g, logits, p, average, layout)
        columns = histogram_nodes.read_distribution(g, average, layout)
        if metadata.DENSITY in layout.outputs:
            values[metadata.DENSITY] = histogram_nodes.density(g, average, layout)
    return columns, values


def _pool(
    g: GraphBuilder, networks: Networks, inputs: dict[str, str], layout: Layout, dtype: type
) -> tuple[CdfColumns, dict[str, str]]:
    """The same of a CR and a QR network side by side."""
    cr, qr = networks.checkpoints
    basis = QuantileBasis.of(qr.model_config)
    _, histogram = _last_layer(g, Networks((cr,)), inputs, np.eye(cr.model_config.bins), dtype)
    _, quantiles = _last_layer(g, Networks((qr,)), inputs, basis.matrix, dtype)
    logits, s2 = histogram.separate(g)
    p, scales = histogram_nodes.probabilities(g, logits, s2), qr.model.head.posterior.scales.detach().numpy()
    mixture = quantile_nodes.components(g, quantiles, scales, basis)
    parts = pool_nodes.PooledHeads(mixture, basis.groups, scales, p, s2, networks.weights[1])
    return pool_nodes.read_distribution(g, parts, layout), pool_nodes.outputs(g, parts, layout)


def _last_layer(
    g: GraphBuilder, networks: Networks, inputs: dict[str, str], basis: Array, dtype: type
) -> tuple[str, LastLayerNodes]:
    """phi of a single network, and its outputs in `basis`; with members the outputs are stacked [M, n, columns]."""
    outputs: list[str] = []
    if networks.passes:
        return "", LastLayerNodes(_passes(g, networks, inputs, basis, dtype), basis.shape[1])
    for checkpoint in networks.checkpoints:
        masks = list(networks.masks) or None
        f, carried = network.phi_parts(g, checkpoint, inputs, masks, dtype)
        layer = last_layer(checkpoint)
        if masks:
            thinned = _thinned_outputs(g, f, carried, layer, basis, checkpoint.model.backbone.width)
            return "", LastLayerNodes(thinned, basis.shape[1])
        phi = f if carried is None else g.node("Concat", [f, carried], "phi", axis=-1)
        last = posterior_nodes.apply(g, phi, layer, basis)
        if len(networks.checkpoints) == 1:
            return phi, last
        outputs.append(last.columns)
    return "", LastLayerNodes(_stacked(g, outputs), basis.shape[1])


def _stacked(g: GraphBuilder, members: Sequence[str]) -> str:
    """[n, columns] each -> [M, n, columns]."""
    axis = g.constant("axis", [0], np.int64)
    return g.node("Concat", [g.node("Unsqueeze", [member, axis], "member") for member in members], "members", axis=0)


def _passes(g: GraphBuilder, networks: Networks, inputs: dict[str, str], basis: Array, dtype: type) -> str:
    """Outputs [S, n, columns] of S stochastic passes. What no mask touches is computed once."""
    checkpoint = networks.first
    x = network.input_vector(g, checkpoint, inputs, dtype)
    layer, hidden = last_layer(checkpoint), checkpoint.model.backbone.width
    weight = (layer.weight.astype(np.float64) @ basis).astype(np.float32)
    bias = (layer.bias.astype(np.float64) @ basis).astype(np.float32)
    drawn = network.dropout_passes(g, checkpoint, x, networks.passes, dtype)
    if dtype != np.float32:
        x, *drawn = (g.node("Cast", [value], to=FLOAT) for value in (x, *drawn))
    carried = network.carried_inputs(g, checkpoint, x)
    shared = g.constant("last/bias", bias)
    if carried is not None:
        shared = g.linear(carried, weight[hidden:], bias, "last/shared")
    own = g.constant("last/weight", weight[:hidden])
    return _stacked(g, [g.node("Gemm", [f, own, shared], "last") for f in drawn])


def _thinned_outputs(g: GraphBuilder, f: str, carried: str | None, layer: LastLayer, basis: Array, hidden: int) -> str:
    """f [S, n, hidden] of S thinned networks, the rest of phi [n, ..] shared by them -> outputs [S, n, columns]."""
    weight, bias = layer.weight.astype(np.float64) @ basis, layer.bias.astype(np.float64) @ basis
    own = g.node("MatMul", [f, g.constant("last/weight", weight[:hidden])], "last/own")
    shared = g.constant("last/bias", bias)
    if carried is not None:
        shared = g.linear(carried, weight[hidden:].astype(np.float32), bias.astype(np.float32), "last/shared")
    return g.node("Add", [own, shared], "last")
