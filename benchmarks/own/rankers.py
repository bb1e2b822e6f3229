"""Rankers as described in their papers, written for `ghostless train --backbone`.

The histories of DIN and the transformer are the last items that a user watched in the training rows. A row's own item
is masked: in training it is always in the history of its user.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ghostless.heads import FeatureInput

USER, ITEM = "user_id", "video_id"
_EMBEDDING_SD = 0.1
# Gain of the initial cross weights: products of two ids' embeddings have to start at the size of the other inputs.
_CROSS_GAIN = 10.0


class Inputs(nn.Module):
    """Embeddings of ids and numbers side by side: x0 [n, width]."""

    def __init__(self, features: Sequence[FeatureInput], dim: int) -> None:
        super().__init__()
        self.features = tuple(features)
        self.tables = nn.ModuleDict({item.name: nn.Embedding(item.rows, dim) for item in features if item.kind == "id"})
        for table in self.tables.values():
            nn.init.normal_(table.get_parameter("weight"), std=_EMBEDDING_SD)
        self.width = sum(dim if item.kind == "id" else 1 for item in features)

    def forward(self, features: Mapping[str, Tensor]) -> Tensor:
        columns = [
            self.tables[item.name](features[item.name]) if item.kind == "id" else features[item.name].unsqueeze(-1)
            for item in self.features
        ]
        return torch.cat(columns, -1)


def mlp(inputs: int, *widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in widths:
        layer = nn.Linear(inputs, width)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        layers += [layer, nn.SiLU()]
        inputs = width
    return nn.Sequential(*layers)


def _start_silent(*layers: nn.Linear) -> None:
    """Initialise the output to 0, so that an untrained history adds no noise to the rest."""
    for layer in layers:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)


class Dcn(nn.Module):
    """DCN-v2 (Wang et al. 2021), parallel: x_{l+1} = x_0 * (W x_l + b) + x_l beside a deep network."""

    def __init__(self, features: Sequence[FeatureInput], dim: int = 32, crosses: int = 2) -> None:
        super().__init__()
        self.inputs = Inputs(features, dim)
        self.crosses = nn.ModuleList(nn.Linear(self.inputs.width, self.inputs.width) for _ in range(crosses))
        with torch.no_grad():
            for cross in self.crosses:
                cross.get_parameter("weight").mul_(_CROSS_GAIN)
        self.deep = mlp(self.inputs.width, 192, 64)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        start = crossed = self.inputs(features)
        for cross in self.crosses:
            crossed = start * cross(crossed) + crossed
        return torch.cat([self.deep(start), crossed], -1)


class _WithHistory(nn.Module):
    """The last `length` items of each user, padded with 0."""

    history: Tensor

    def __init__(self, features: Sequence[FeatureInput], dim: int, length: int) -> None:
        super().__init__()
        self.inputs = Inputs(features, dim)
        rows = {item.name: item.rows for item in features}
        self.register_buffer("history", torch.zeros(rows[USER], length, dtype=torch.int64))

    @torch.no_grad()
    def observe(self, features: Mapping[str, Tensor]) -> None:
        """Append these rows to the histories."""
        for user, item in zip(features[USER].tolist(), features[ITEM].tolist(), strict=True):
            self.history[user] = torch.roll(self.history[user], 1)
            self.history[user, 0] = item
        # The unknown user has no history.
        self.history[0] = 0

    def remembered(self, features: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Candidate [n, dim], history [n, length, dim], and a mask [n, length] that is 1 where the history has another
        item."""
        table, items = self.inputs.tables[ITEM], self.history[features[USER]]
        known = (items != 0) & (items != features[ITEM].unsqueeze(-1))
        return table(features[ITEM]), table(items), known.float()


class Din(_WithHistory):
    """DIN (Zhou et al. 2018): each item of the history is weighted by a small network over [item, difference, product,
    candidate], without softmax. The weighted sum and its product with the candidate are appended to the inputs."""

    def __init__(self, features: Sequence[FeatureInput], dim: int = 32, length: int = 20) -> None:
        super().__init__(features, dim, length)
        last = nn.Linear(36, 1)
        self.attention = nn.Sequential(nn.Linear(4 * dim, 36), nn.SiLU(), last)
        _start_silent(last)
        width = self.inputs.width + 2 * dim
        self.cross = nn.Linear(width, width)
        with torch.no_grad():
            self.cross.weight.mul_(_CROSS_GAIN)
        self.deep = mlp(2 * width, 192, 64)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        candidate, items, known = self.remembered(features)
        query = candidate.unsqueeze(1).expand_as(items)
        weights = self.attention(torch.cat([items, query - items, query * items, query], -1)).squeeze(-1) * known
        interest = (weights.unsqueeze(-1) * items).sum(1) / math.sqrt(items.shape[1])
        inputs = torch.cat([self.inputs(features), interest, interest * candidate], -1)
        both = torch.cat([inputs, inputs * self.cross(inputs)], -1)
        return torch.cat([self.deep(both), both], -1)


class Transformer(_WithHistory):
    """A transformer layer over history and candidate, as in BST (Chen et al. 2019); its output for the candidate is
    appended to the other inputs."""

    def __init__(self, features: Sequence[FeatureInput], dim: int = 32, length: int = 20, heads: int = 2) -> None:
        super().__init__(features, dim, length)
        self.places = nn.Parameter(torch.randn(length + 1, dim) * _EMBEDDING_SD)
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm_before, self.norm_after = nn.LayerNorm(dim), nn.LayerNorm(dim)
        last = nn.Linear(2 * dim, dim)
        self.inner = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), last)
        _start_silent(self.out, last)
        width = self.inputs.width + dim
        self.cross = nn.Linear(width, width)
        with torch.no_grad():
            self.cross.weight.mul_(_CROSS_GAIN)
        self.deep = mlp(2 * width, 192, 64)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        candidate, items, known = self.remembered(features)
        sequence = torch.cat([candidate.unsqueeze(1), items], 1) + self.places
        mask = torch.cat([torch.ones_like(known[:, :1]), known], 1)
        attended = sequence + self._attention(self.norm_before(sequence), mask)
        encoded = (attended + self.inner(self.norm_after(attended)))[:, 0]
        inputs = torch.cat([self.inputs(features), encoded], -1)
        both = torch.cat([inputs, inputs * self.cross(inputs)], -1)
        return torch.cat([self.deep(both), both], -1)

    def _attention(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [n, t, dim], mask [n, t] -> [n, t, dim]; masked positions get no attention."""
        t, dim = x.shape[1], x.shape[2]
        split = self.qkv(x).reshape(-1, t, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = split[0], split[1], split[2]
        scores = q @ k.transpose(-1, -2) / math.sqrt(dim // self.heads)
        scores = scores + (mask - 1.0).reshape(-1, 1, 1, t) * 1e4
        mixed = scores.softmax(-1) @ v
        output: Tensor = self.out(mixed.transpose(1, 2).reshape(-1, t, dim))
        return output
