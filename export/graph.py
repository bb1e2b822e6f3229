"""A trained model, or several, as one ONNX graph: raw features in, whole predictive distributions out.

Five methods have the same contract: `vbll`, its `deterministic` twin, an `ensemble` of M networks fused into one graph,
`mc-dropout`, which draws new masks for every row and pass, and `mc-dropout-fixed`, with S masks that are drawn once, at
export, and shared by all rows. The last is cheaper and its answers are reproducible, but it amounts to S fixed
subnetworks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from export import (
    cdf_nodes,
    effect_nodes,
    emg_nodes,
    foreign_backbone,
    histogram_nodes,
    member_nodes,
    network,
    pool_nodes,
    posterior_nodes,
    quantile_nodes,
    reading,
    split_nodes,
)
from export.builder import Array, GraphBuilder, Value
from export.cdf_nodes import Segments
from export.effect_nodes import EffectNodes
from export.errors import OptionError
from export.last_layer import LastLayer, last_layer
from export.options import Layout
from export.posterior_nodes import LastLayerNodes, PhiNodes
from export.quantile_nodes import QuantileBasis
from export.stack_nodes import Stack
from ghostless.contract import metadata
from ghostless.contract.metadata import Head, Method
from ghostless.heads.calibration import Calibration
from ghostless.heads.effect_variance import EffectVariance
from ghostless.heads.histogram import HistogramHead
from ghostless.heads.quantile import QuantileHead
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.trained import TrainedModel


@dataclass(frozen=True)
class Networks:
    """The networks of one graph: a single checkpoint, the members of an ensemble, a checkpoint with fixed dropout masks
    [S, 1, width] or with `passes` whose masks the graph draws, or a weighted pool of a CR and a QR network."""

    checkpoints: tuple[Checkpoint, ...]
    masks: tuple[Array, ...] = ()
    # A pool's weights, CR first and then QR; they sum to 1.
    weights: tuple[float, ...] = ()
    passes: int = 0
    # Calibration of a pool's own distribution.
    pool_calibration: Calibration = field(default_factory=Calibration)

    @property
    def first(self) -> Checkpoint:
        return self.checkpoints[0]

    @property
    def held_out(self) -> Table | None:
        """Rows that no network of the graph was trained on, if the run stored any. None for an ensemble: each member
        has its own split, so one member's held-out rows are another's training rows."""
        return self.first.calibration if len(self.checkpoints) == 1 or self.weights else None

    @property
    def calibration(self) -> Calibration:
        """Temperature and map of the served distribution. An average over members has a map only if export fits one:
        the members' own maps belong to their own distributions."""
        if self.weights:
            return self.pool_calibration
        return self.first.model.head.calibration if self.members == 1 else Calibration()

    @property
    def effects(self) -> EffectVariance | None:
        """Effects of the ids, which are the same for both networks of a pool. Ensembles, MC-dropout and deterministic
        twins split their variance without effects."""
        return self.first.model.effects if self.method == "vbll" else None

    @property
    def share_bins(self) -> bool:
        """Whether all networks have the same knots."""
        knots = self.first.model.head.knots
        return all(knots.equal(checkpoint.model.head.knots) for checkpoint in self.checkpoints[1:])

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
        # Only served models get here, and those have one of these two methods.
        return "vbll" if self.first.model_config.method == "vbll" else "deterministic"

    @classmethod
    def trained(cls, model: TrainedModel) -> "Networks":
        """The result of a `ghostless train` run: one network, or the two networks of a pool."""
        first = replace(model.first, metrics=model.metrics, pairs=model.pairs)
        if len(model.checkpoints) == 1:
            return cls((first,))
        return cls((first, *model.checkpoints[1:]), weights=model.weights, pool_calibration=model.calibration)

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
    if checkpoint.model_config.own:
        raise OptionError("MC-dropout needs a built-in backbone: dropout inside a backbone of your own is switched off")
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
    tail = _pool if networks.weights else _members if networks.members > 1 else _one_network
    segments, values = tail(g, networks, inputs, layout, dtype)
    values |= {metadata.CDF: g.transpose(segments.cdf, "cdf/rows"), metadata.BINS: cdf_nodes.bins(g, segments, layout)}
    if metadata.ATOMS in layout.outputs:
        values[metadata.ATOMS] = cdf_nodes.atoms(g, segments, layout)
    if metadata.DENSITY in layout.outputs:
        values[metadata.DENSITY] = cdf_nodes.density(g, segments, layout)
    if metadata.QUANTILES in layout.outputs:
        values[metadata.QUANTILES] = cdf_nodes.quantiles(g, segments, layout)
    widths = {
        metadata.QUANTILES: len(layout.levels),
        metadata.BINS: len(layout.edges) - 1,
        metadata.ATOMS: len(layout.atoms),
        metadata.CDF: len(layout.knots),
        metadata.DENSITY: len(layout.grid),
        metadata.EMG_DENSITY: len(layout.grid),
        metadata.UNKNOWN_IDS: len(networks.first.schema.id_names),
    }
    exposed: dict[Value, Value] = {}
    for name in layout.outputs:
        # If a value is exposed as two outputs (bins and masses, a twin's zeros), the second refers to it by the name
        # of the first.
        served = g.output(name, exposed.get(values[name], values[name]), widths.get(name))
        exposed.setdefault(values[name], served)
    g.drop_unused()
    return g


Tail = tuple[Segments, dict[str, Value]]


def _one_network(g: GraphBuilder, networks: Networks, inputs: dict[str, Value], layout: Layout, dtype: type) -> Tail:
    """The calibrated distribution and the other outputs of one network."""
    checkpoint = networks.first
    head = checkpoint.model.head
    values: dict[str, Value] = {}
    if isinstance(head, QuantileHead):
        basis = QuantileBasis.of(checkpoint.model_config)
        phi, last = _last_layer(g, checkpoint, inputs, basis.matrix, dtype)
        scales = head.posterior.scales.detach().numpy()
        parts = quantile_nodes.components(g, last, scales, basis)
        # At the outer knots the heights are 0 and 1; the mixture is evaluated there only for the variance l.
        points = slice(1, -1) if parts.s2 is None else slice(None)
        z = head.z.double().numpy()[points]
        erf = quantile_nodes.erf_at_knots(g, parts, z)
        sums = quantile_nodes.erf_sums(g, erf, len(z), basis.groups)
        heights = reading.quantile_heights(head, basis.groups, points, layout.knots)
        segments = cdf_nodes.from_heights(g, sums, *heights, layout)
        moments = cdf_nodes.moments(g, segments.mass, layout.knots)
        s2 = None if parts.s2 is None else g.squeeze(parts.s2, 0)
        last_layer = None if s2 is None else quantile_nodes.last_layer_variance(g, erf, s2, scales, head)
        if metadata.EMG_DENSITY in layout.outputs and parts.s2 is not None:
            values[metadata.EMG_DENSITY] = emg_nodes.density(g, phi, parts.s2, checkpoint, layout)
    else:
        _, last = _last_layer(g, checkpoint, inputs, np.eye(len(head.classes)), dtype)
        logits, variance = last.separate(g)
        p = histogram_nodes.probabilities(g, logits, variance)
        matrix = reading.class_masses(head, layout.knots)
        mass = p if matrix is None else g.node("MatMul", [p, g.constant("segments", matrix)], "masses")
        segments = cdf_nodes.from_masses(g, mass, layout)
        moments = cdf_nodes.moments(g, segments.mass, layout.knots)
        s2 = None if variance is None else g.squeeze(variance, 0)
        temperature = head.calibration.temperature
        last_layer = None if s2 is None else histogram_nodes.last_layer_variance(g, moments, s2, temperature)
    known, effects = _row_facts(g, networks)
    divided = None if last_layer is None else split_nodes.split(g, last_layer, moments.total, effects)
    rows = {
        metadata.MEAN: moments.mean,
        metadata.ALEATORIC: moments.total if divided is None else divided.aleatoric,
        metadata.EPISTEMIC: None if divided is None else divided.epistemic,
        metadata.EPISTEMIC_CANDIDATE: None if divided is None else divided.candidate,
        metadata.EPISTEMIC_LAST_LAYER: last_layer,
        metadata.LOGIT_VARIANCE: s2,
    }
    if isinstance(head, HistogramHead):
        rows |= histogram_nodes.gini_outputs(g, segments.mass, moments.count, s2, divided)
    return segments, values | known | cdf_nodes.with_zeros(g, rows)


def _members(g: GraphBuilder, networks: Networks, inputs: dict[str, Value], layout: Layout, dtype: type) -> Tail:
    """The calibrated distribution and the other outputs of several networks with the same kind of head."""
    config = networks.first.model_config
    basis = QuantileBasis.of(config) if config.head == "qr" else None
    raw: Value | None
    if networks.masks or networks.passes:
        head = networks.first.model.head
        matrix = basis.matrix if basis else np.eye(_classes(networks.first))
        drawn = (_passes if networks.passes else _thinned)(g, networks, inputs, matrix, dtype)
        masses, raw = member_nodes.masses(g, drawn, head, basis, networks.members, layout)
    else:
        each: list[Value] = []
        outputs: list[Value] = []
        for checkpoint in networks.checkpoints:
            matrix = basis.matrix if basis else np.eye(_classes(checkpoint))
            _, last = _last_layer(g, checkpoint, inputs, matrix, dtype)
            own, output = member_nodes.masses(g, last.columns, checkpoint.model.head, basis, 1, layout)
            each.append(own)
            outputs.append(output)
        masses = _stacked(g, each)
        raw = _stacked(g, outputs) if basis is not None or networks.share_bins else None
    stacked = Stack(masses, networks.members, len(layout.knots) - 1)
    segments, values, apart = member_nodes.outputs(g, stacked, layout)
    columns = basis.groups if basis else _classes(networks.first)
    compared = Stack(raw, networks.members, columns) if raw else member_nodes.logs(g, stacked)
    values[metadata.LOGIT_VARIANCE] = compared.variance(g, "members/logit_variance")
    if basis is None:
        values |= histogram_nodes.member_gini_outputs(g, stacked, apart)
    return segments, values | _row_facts(g, networks)[0]


def _classes(checkpoint: Checkpoint) -> int:
    head = checkpoint.model.head
    assert isinstance(head, HistogramHead)
    return len(head.classes)


def _pool(g: GraphBuilder, networks: Networks, inputs: dict[str, Value], layout: Layout, dtype: type) -> Tail:
    """The calibrated distribution and the other outputs of a pool of a CR and a QR network."""
    cr, qr = networks.checkpoints
    basis = QuantileBasis.of(qr.model_config)
    _, histogram = _last_layer(g, cr, inputs, np.eye(_classes(cr)), dtype)
    _, quantiles = _last_layer(g, qr, inputs, basis.matrix, dtype)
    logits, s2 = histogram.separate(g)
    cr_head, qr_head = cr.model.head, qr.model.head
    assert isinstance(cr_head, HistogramHead)
    assert isinstance(qr_head, QuantileHead)
    p, scales = histogram_nodes.probabilities(g, logits, s2), qr_head.posterior.scales.detach().numpy()
    mixture = quantile_nodes.components(g, quantiles, scales, basis)
    known, effects = _row_facts(g, networks)
    parts = pool_nodes.PooledHeads(cr_head, p, s2, qr_head, mixture, scales, networks.weights[1], effects)
    segments, values = pool_nodes.outputs(g, parts, layout)
    return segments, values | known


def _row_facts(g: GraphBuilder, networks: Networks) -> tuple[dict[str, Value], EffectNodes | None]:
    """The output that flags unknown ids, if the model has ids, and the variance of effects. Call this after the
    networks' embeddings have been gathered."""
    facts = effect_nodes.row_facts(g, networks.first.encoding, networks.effects)
    return ({}, None) if facts is None else ({metadata.UNKNOWN_IDS: facts.unknown}, facts.effects)


def _last_layer(
    g: GraphBuilder, checkpoint: Checkpoint, inputs: dict[str, Value], basis: Array, dtype: type
) -> tuple[PhiNodes, LastLayerNodes]:
    """phi of a network, and its outputs in `basis`."""
    layer = served_layer(checkpoint)
    if checkpoint.model_config.own:
        phi = PhiNodes(foreign_backbone.phi(g, checkpoint, inputs), None, checkpoint.model.features)
    else:
        phi = PhiNodes(*network.phi_parts(g, checkpoint, inputs, None, dtype), checkpoint.model.backbone.width)
    return phi, posterior_nodes.apply(g, phi, layer, basis)


def served_layer(checkpoint: Checkpoint) -> LastLayer:
    """The last layer with its head's temperature folded in."""
    return last_layer(checkpoint).at_temperature(checkpoint.model.head.calibration.temperature)


def _stacked(g: GraphBuilder, members: Sequence[Value]) -> Value:
    """[n, columns] each -> [M, n, columns]."""
    axis = g.constant("axis", [0], np.int64)
    return g.node("Concat", [g.node("Unsqueeze", [member, axis], "member") for member in members], "members", axis=0)


def _passes(g: GraphBuilder, networks: Networks, inputs: dict[str, Value], basis: Array, dtype: type) -> Value:
    """Outputs [S, n, columns] of S stochastic passes. Values that do not depend on a mask are computed once."""
    checkpoint = networks.first
    expanded = network.expand(g, checkpoint, network.input_vector(g, checkpoint, inputs))
    layer, backbone = served_layer(checkpoint), checkpoint.model.backbone
    weight, bias = (part.astype(np.float32) for part in (layer.weight @ basis, layer.bias @ basis))
    narrow = network.narrowed(g, expanded, dtype)
    drawn = [
        network.widened(g, f, dtype) for f in network.dropout_passes(g, checkpoint, narrow, networks.passes, dtype)
    ]
    shared = g.constant("last/bias", bias)
    if backbone.raw:
        shared = g.linear(expanded, weight[backbone.width :], bias, "last/shared")
    kept = 1.0 if backbone.residual else 1.0 / (1.0 - checkpoint.model_config.dropout)
    own = g.constant("last/weight", kept * weight[: backbone.width])
    return _stacked(g, [g.node("Gemm", [f, own, shared], "last") for f in drawn])


def _thinned(g: GraphBuilder, networks: Networks, inputs: dict[str, Value], basis: Array, dtype: type) -> Value:
    """Outputs [S, n, columns] of S thinned networks, which share the values that do not depend on a mask."""
    checkpoint = networks.first
    f, carried = network.phi_parts(g, checkpoint, inputs, list(networks.masks), dtype)
    layer, hidden = served_layer(checkpoint), checkpoint.model.backbone.width
    weight, bias = (part.astype(np.float32) for part in (layer.weight @ basis, layer.bias @ basis))
    own = g.node("MatMul", [f, g.constant("last/weight", weight[:hidden])], "last/own")
    shared = g.constant("last/bias", bias)
    if carried is not None:
        shared = g.linear(carried, weight[hidden:], bias, "last/shared")
    return g.node("Add", [own, shared], "last")
