"""From raw features to phi: multi-tower embeddings, then a spectral-normalised network."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from learning.config import ModelConfig
from learning.schema import Feature

# Standard deviations beyond which a number's distance no longer counts: keeps s^2 finite for any float32 input.
FARTHEST = 1e4


class SpectralLinear(nn.Module):
    """A linear layer whose largest singular value never exceeds `bound`.

    Training divides by a power-iteration estimate, one step a batch. An estimate lies below the truth, so in
    evaluation the exact singular value is used: what is judged, exported and served keeps the bound.
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
        """The weight as it is served, [outputs, inputs]; computed anew only after the weight has changed."""
        state = (id(self.weight), self.weight._version)
        if self._folded is None or self._folded[0] != state:
            norm: float = torch.linalg.matrix_norm(self.weight.detach().double(), ord=2).item()
            self._folded = state, self.weight.detach() * min(1.0, self.bound / norm)
        return self._folded[1]

    def _scale(self) -> Tensor:
        with torch.no_grad():
            self.u.copy_(nn.functional.normalize(self.weight @ self.v, dim=0))
            self.v.copy_(nn.functional.normalize(self.weight.T @ self.u, dim=0))
        norm = self.u.clone() @ self.weight @ self.v.clone()
        return (self.bound / norm).clamp(max=1.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            # A fused optimizer changes the weight without a word to its version.
            self._folded = None
        weight = self.weight * self._scale() if self.training else self.folded()
        return nn.functional.linear(x, weight, self.bias)


class Towers(nn.Module):
    """One embedding per id and bucket feature, numbers as they are, side by side.

    Row 0 of an id's table is its out-of-vocabulary row; `id_dropout` sends known ids there in training.
    """

    def __init__(
        self,
        features: tuple[Feature, ...],
        rows: Mapping[str, int],
        counts: Mapping[str, Tensor],
        config: ModelConfig,
    ) -> None:
        """rows: table height by feature. counts: how often training saw each row of an id's table, row 0 first."""
        super().__init__()
        self.features = features
        self.id_dropout = config.id_dropout
        self.tables = nn.ModuleDict()
        for feature in features:
            if feature.kind != "number":
                self.tables[feature.name] = nn.Embedding(rows[feature.name], feature.embedding)
                nn.init.normal_(self.table(feature.name), std=0.1)
        self.ids = tuple(feature.name for feature in features if feature.kind == "id") if config.novelty else ()
        for name in self.ids:
            self.register_buffer(f"novelty_{name}", torch.rsqrt(1.0 + counts[name].float()))

    @property
    def width(self) -> int:
        """Width of the raw vector x."""
        return sum(1 if feature.kind == "number" else feature.embedding for feature in self.features)

    def table(self, name: str) -> Tensor:
        """The embedding table of an id or bucket feature [rows, width]."""
        return self.tables[name].get_parameter("weight")

    def novelty(self, name: str) -> Tensor:
        """The novelty column of an id's table [rows]: 1 / sqrt(1 + n_id), 1 for an unknown id."""
        return self.get_buffer(f"novelty_{name}")

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Encoded features [n] each -> x [n, width] and the novelty columns [n, ids]."""
        columns: list[Tensor] = []
        novelty: list[Tensor] = []
        for feature in self.features:
            values = batch[feature.name]
            if feature.kind == "number":
                columns.append(values.clamp(-FARTHEST, FARTHEST).unsqueeze(-1))
                continue
            if feature.kind == "id" and self.training and self.id_dropout:
                values = values * (torch.rand(values.shape) >= self.id_dropout)
            columns.append(self.tables[feature.name](values))
            if feature.name in self.ids:
                novelty.append(self.novelty(feature.name)[values].unsqueeze(-1))
        x = torch.cat(columns, -1)
        return x, torch.cat(novelty, -1) if novelty else x[:, :0]


class Backbone(nn.Module):
    """x [n, width] -> f(x), by one of three spectral-normalised networks.

    `sn`: a plain MLP. `sn+raw`: the same, with x appended to phi, which makes phi bi-Lipschitz (Assumption 1).
    `spectral-residual`: x -> first hidden width, then residual blocks h + g(h) with |g| < 1, invertible by themselves.
    """

    def __init__(self, width: int, config: ModelConfig) -> None:
        super().__init__()
        self.kind = config.backbone
        self.dropout = nn.Dropout(config.dropout)
        sizes = (width, *config.hidden)
        if self.kind == "spectral-residual":
            sizes = (width,) + (config.hidden[-1],) * len(config.hidden)
        self.layers = nn.ModuleList(
            SpectralLinear(a, b, self._bound(i, config)) for i, (a, b) in enumerate(pairwise(sizes))
        )
        self.width = sizes[-1]

    def _bound(self, index: int, config: ModelConfig) -> float:
        # A residual block keeps distances only if its branch contracts.
        return min(config.spectral_bound, 0.95) if self.kind == "spectral-residual" and index else config.spectral_bound

    @property
    def raw(self) -> bool:
        """Whether phi carries x itself."""
        return self.kind == "sn+raw"

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for index, layer in enumerate(self.layers):
            branch = self.dropout(torch.relu(layer(h))) if index or self.kind != "spectral-residual" else layer(h)
            h = h + branch if index and self.kind == "spectral-residual" else branch
        return h
