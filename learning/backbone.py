"""Computes phi from encoded features: multi-tower embeddings and numbers as x, a cross layer, then a network.

    x = for every feature in the schema's order: an id's embedding; a number's bucket embedding, z and ramps @ W, where
        ramps [n, P] are clip(position - j, 0, 1) (learning.data.encoding)
    c = CROSS_GAIN * x * (x W + b), elementwise, with W [width, width], which has low rank if x is wide
    phi = [f(x, c), x, c]

This is the default backbone, `cross`; the others omit parts of it.
"""

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from learning.config import ActivationName, ModelConfig
from learning.data.encoding import position_key, z_key
from learning.effect_inputs import FOLD_KEY, EffectInputs
from learning.schema import Feature

# Initial standard deviation of embeddings and ramps.
EMBEDDING_SD = 0.1
# Number of columns that a number's ramps are mapped to.
RAMP_WIDTH = 16
# Embeddings start at EMBEDDING_SD, so products of two are ten times smaller; this factor brings both to the same scale.
CROSS_GAIN = 10.0
LEAKY_SLOPE = 0.1


class SpectralLinear(nn.Module):
    """A linear layer whose largest singular value never exceeds `bound`.

    Training divides by a power-iteration estimate, with one step per batch. The estimate is below the true value, so
    evaluation uses the exact singular value: evaluated, exported and served networks satisfy the bound.
    """

    u: Tensor
    v: Tensor

    def __init__(self, inputs: int, outputs: int, bound: float) -> None:
        super().__init__()
        self.bound = bound
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.orthogonal_(self.weight, gain=min(bound, 1.0))
        self.register_buffer("u", nn.functional.normalize(torch.randn(outputs), dim=0))
        self.register_buffer("v", nn.functional.normalize(torch.randn(inputs), dim=0))
        self._folded: tuple[tuple[int, int], Tensor] | None = None

    def folded(self) -> Tensor:
        """The weight as it is served, [outputs, inputs]; recomputed only after the weight has changed."""
        state = (id(self.weight), self.weight._version)
        if self._folded is None or self._folded[0] != state:
            norm: float = torch.linalg.matrix_norm(self.weight.detach().double(), ord=2).item()
            self._folded = state, self.weight.detach() * min(1.0, self.bound / norm)
        return self._folded[1]

    def train(self, mode: bool = True) -> "SpectralLinear":
        """Like `nn.Module.train`. Also drops the cached weight, because an averaged copy never runs in training
        mode."""
        self._folded = None
        super().train(mode)
        return self

    def _scale(self) -> Tensor:
        with torch.no_grad():
            self.u.copy_(nn.functional.normalize(self.weight @ self.v, dim=0))
            self.v.copy_(nn.functional.normalize(self.weight.T @ self.u, dim=0))
        norm = self.u.clone() @ self.weight @ self.v.clone()
        return (self.bound / norm).clamp(max=1.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            # A fused optimizer changes the weight without changing its version counter.
            self._folded = None
        weight = self.weight * self._scale() if self.training else self.folded()
        return nn.functional.linear(x, weight, self.bias)


class Towers(nn.Module):
    """Concatenates one embedding per id and per number's bucket, and z and ramps of every number.

    Row 0 of an id's table is its out-of-vocabulary row; in training, `id_dropout` maps some known ids to it. inputs:
    effects that training reads instead of the last columns of the ids' tables (learning.effect_inputs).
    """

    inputs: EffectInputs | None = None

    def __init__(
        self,
        features: tuple[Feature, ...],
        rows: Mapping[str, int],
        pieces: Mapping[str, int],
        config: ModelConfig,
    ) -> None:
        """rows: number of table rows by feature. pieces: P of every number."""
        super().__init__()
        self.features = features
        self.id_dropout = config.id_dropout
        self.tables = nn.ModuleDict()
        self.ramps = nn.ParameterDict()
        for feature in features:
            name = feature.name
            self.tables[name] = nn.Embedding(rows[name], feature.embedding)
            nn.init.normal_(self.table(name), std=EMBEDDING_SD)
            if not feature.is_coded:
                # In the middle of the range, half of the ramps are 1.
                scale = EMBEDDING_SD / math.sqrt(max(1.0, pieces[name] / 2))
                self.ramps[name] = nn.Parameter(torch.randn(pieces[name], RAMP_WIDTH) * scale)

    @property
    def width(self) -> int:
        """Width of the raw vector x."""
        return sum(self.feature_width(feature) for feature in self.features)

    @staticmethod
    def feature_width(feature: Feature) -> int:
        """Number of columns of x for a feature: its embedding and, for a number, z and the mapped ramps."""
        return feature.embedding + (0 if feature.is_coded else 1 + RAMP_WIDTH)

    def table(self, name: str) -> Tensor:
        """The embedding table of a feature [rows, width]."""
        return self.tables[name].get_parameter("weight")

    def ramp_weight(self, name: str) -> Tensor:
        """W of a number's ramps [P, RAMP_WIDTH]."""
        weight: Tensor = self.ramps[name]
        return weight

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Encoded features [n] each -> x [n, width]."""
        columns: list[Tensor] = []
        for feature in self.features:
            name, values = feature.name, batch[feature.name]
            if feature.is_coded:
                columns.append(self._embedded(name, batch))
                continue
            columns += [self.tables[name](values), batch[z_key(name)].unsqueeze(-1)]
            columns.append(self._ramps(name, batch[position_key(name)]))
        return torch.cat(columns, -1)

    @torch.no_grad()
    def hold_inputs(self) -> None:
        """Set the last columns of the ids' tables to the effects of all training rows. This must be repeated after
        training steps: the optimizer decays whole tables, so it changes these columns too."""
        for name, columns in {} if self.inputs is None else self.inputs.columns.items():
            self.table(name)[:, -columns.shape[1] :] = columns

    def _embedded(self, name: str, batch: Mapping[str, Tensor]) -> Tensor:
        """The embedding [n, width] of an id. In training, some ids are replaced by the unknown id. This is done
        independently for the embedding and for the effects, because an id that is learned after training has effects
        but no embedding."""
        width = 0 if self.inputs is None else self.inputs.width(name)
        embedded: Tensor = self.tables[name](self._dropped(batch[name]))
        if not self.training or self.inputs is None or not width:
            return embedded
        fitted = self.inputs.without[name][batch[FOLD_KEY], self._dropped(batch[name])]
        return torch.cat([embedded[:, :-width], fitted], -1)

    def _dropped(self, values: Tensor) -> Tensor:
        if not self.training or not self.id_dropout:
            return values
        return values * (torch.rand(values.shape) >= self.id_dropout)

    def _ramps(self, name: str, position: Tensor) -> Tensor:
        """The mapped piecewise-linear encoding: position [n] -> [n, RAMP_WIDTH]."""
        weight = self.ramp_weight(name)
        return (position.unsqueeze(-1) - torch.arange(len(weight))).clamp(0.0, 1.0) @ weight


class CrossLayer(nn.Module):
    """x [n, width] -> CROSS_GAIN * x * (x W + b) [n, width].

    W is one matrix [width, width], or A B with A [width, rank] and B [rank, width] if these have fewer entries.
    `factors` is [W] or [A, B].
    """

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        sizes = (width, rank, width) if 2 * rank < width else (width, width)
        self.factors = nn.ParameterList(nn.Parameter(torch.randn(a, b) / math.sqrt(a)) for a, b in pairwise(sizes))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        gate = x
        for factor in self.factors:
            gate = gate @ factor
        return CROSS_GAIN * x * (gate + self.bias)


class Backbone(nn.Module):
    """x [n, width] -> f [n, hidden], by one of five networks.

    `cross`: an MLP over [x, cross layer of x]; phi contains both as well. `sn+cross`: the same with spectral norm.
    `sn`: the paper's spectral-normalised MLP over x. `sn+raw`: the same with x appended to phi, which makes phi
    bi-Lipschitz (Assumption 1). `spectral-residual`: x -> last hidden width, then residual blocks h + g(h) with |g| < 1
    (for SiLU, whose slope reaches 1.1, < 1.05). The blocks are bi-Lipschitz except with SiLU. The whole network is not,
    because the first layer maps a wider x to that width and loses information.
    """

    def __init__(self, width: int, config: ModelConfig) -> None:
        super().__init__()
        self.kind = config.backbone
        self.activation = config.activation_name
        self.dropout = nn.Dropout(config.dropout)
        self.cross = CrossLayer(width, config.cross_rank) if self.kind in ("cross", "sn+cross") else None
        # Width of the first layer's input, which is also part of phi with `raw`.
        self.inputs = width if self.cross is None else 2 * width
        sizes = (self.inputs, *config.hidden)
        if self.residual:
            sizes = (self.inputs,) + (config.hidden[-1],) * len(config.hidden)
        self.layers = nn.ModuleList(self._layer(i, a, b, config) for i, (a, b) in enumerate(pairwise(sizes)))

    def _layer(self, index: int, inputs: int, outputs: int, config: ModelConfig) -> nn.Module:
        if self.kind == "cross":
            layer = nn.Linear(inputs, outputs)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
            return layer
        # A residual block preserves distances only if its branch is a contraction.
        bound = min(config.spectral_bound, 0.95) if self.residual and index else config.spectral_bound
        return SpectralLinear(inputs, outputs, bound)

    @property
    def residual(self) -> bool:
        return self.kind == "spectral-residual"

    @property
    def raw(self) -> bool:
        """Whether phi contains x itself (and the output of the cross layer, if there is one)."""
        return self.kind in ("cross", "sn+cross", "sn+raw")

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the layers; after pruning they are smaller than in the configuration."""
        return tuple(len(layer.get_parameter("bias")) for layer in self.layers)

    @property
    def width(self) -> int:
        """Width of f."""
        return self.hidden[-1]

    def expand(self, x: Tensor) -> Tensor:
        """x [n, width] -> input of the first layer [n, inputs]: x followed by the output of the cross layer."""
        return x if self.cross is None else torch.cat([x, self.cross(x)], -1)

    def activations(self, expanded: Tensor) -> list[Tensor]:
        """The output of every layer, [n, width] each, for `expand`ed inputs [n, inputs]; the last one is f."""
        outputs: list[Tensor] = []
        h = expanded
        for index, layer in enumerate(self.layers):
            if self.residual and not index:
                h = layer(h)
            else:
                branch = self.dropout(activate(layer(h), self.activation))
                h = h + branch if self.residual else branch
            outputs.append(h)
        return outputs

    def forward(self, expanded: Tensor) -> Tensor:
        return self.activations(expanded)[-1]


def activate(x: Tensor, name: ActivationName) -> Tensor:
    """The named activation, elementwise."""
    match name:
        case "silu":
            return nn.functional.silu(x)
        case "leaky":
            return nn.functional.leaky_relu(x, LEAKY_SLOPE)
        case "relu":
            return torch.relu(x)
