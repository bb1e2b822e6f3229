"""Backbones as other teams write them, for `--backbone tests.support.rankers:NAME`: good ones, and ones that can't be
served."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ghostless.heads import FeatureInput

Batch = dict[str, Tensor]


class TwoTower(nn.Module):
    """Embeddings and numbers of each role through a tower of its own, and their product beside them."""

    preserves_distances = False

    def __init__(self, features: Sequence[FeatureInput], width: int = 12, normalised: bool = False) -> None:
        super().__init__()
        self.features = features
        self.tables = nn.ModuleDict({item.name: nn.Embedding(item.rows, 6) for item in features if item.kind == "id"})
        self.towers = nn.ModuleDict()
        for role in ("context", "candidate"):
            inputs = sum(6 if item.kind == "id" else 1 for item in features if item.role == role)
            norm = nn.BatchNorm1d(width) if normalised else nn.Identity()
            self.towers[role] = nn.Sequential(nn.Linear(inputs, width), norm, nn.SiLU(), nn.Dropout(0.1))

    def forward(self, features: Batch) -> Tensor:
        towers = []
        for role, tower in self.towers.items():
            columns = [
                self.tables[item.name](features[item.name]) if item.kind == "id" else features[item.name].unsqueeze(-1)
                for item in self.features
                if item.role == role
            ]
            towers.append(tower(torch.cat(columns, -1)))
        return torch.cat([*towers, towers[0] * towers[1]], -1)


class _Broken(TwoTower):
    def forward(self, features: Batch) -> Tensor:
        return self.spoiled(super().forward(features), features)

    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        raise NotImplementedError


class SoftmaxOverRows(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi.softmax(0)


class SortedRows(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi.sort(0).values


class CentredRows(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi - phi.mean(0)


class TrainingNorm(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return nn.functional.batch_norm(phi, None, None, training=True)


class FixedRows(_Broken):
    """Only for the number of rows that it sees first, as a traced reshape has it."""

    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi.reshape(int(phi.shape[0]), 4, -1).flatten(1) if phi.shape[0] in (3, 64) else phi[:0]


class Noisy(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi + torch.rand_like(phi)


class DataShaped(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return torch.cat([phi, phi[phi[:, 0] > -1e30][: len(phi)]], -1)


class Branching(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi if phi.sum() > 0 else -phi


class NoNumber(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi + torch.log(features["duration_ms"] + 20.0).unsqueeze(-1)


class ThreeDimensional(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi.unsqueeze(1)


class DoublePrecision(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi.double()


class Scalar(_Broken):
    def spoiled(self, phi: Tensor, features: Batch) -> Tensor:
        return phi.mean()


class NotAModule:
    pass
