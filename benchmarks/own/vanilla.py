"""Rankers that were trained without our heads, as ONNX files, for `ghostless fit`.

They are trained by the same recipe as ours, but with the loss that their owner would use: cross-entropy over bins,
pinball, or squared error on the mean. The file takes raw features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from export import foreign_backbone
from export.builder import GraphBuilder
from ghostless.heads.predictive import Predictive
from learning.checkpoint import Build, Checkpoint, build_model, build_network
from learning.config import ModelConfig, TrainConfig
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.model import Head, Network
from learning.own.model import TorchRankerNetwork
from learning.schema import Schema
from learning.training import Trainer

Loss = Literal["cr", "qr", "squared"]


class SquaredErrorHead(nn.Module):
    """One linear output for the mean."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.output = nn.Linear(features, 1)

    def start_at(self, target_sample: Tensor) -> None:
        with torch.no_grad():
            self.output.bias.fill_(float(target_sample.mean()))

    def spread_parameters(self) -> list[nn.Parameter]:
        return []

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        error: Tensor = self.output(phi).squeeze(-1) - y
        return error.square()

    def kl(self) -> Tensor:
        return torch.zeros(())

    def predict(self, phi: Tensor) -> Predictive:
        raise NotImplementedError("a mean is no distribution")


class SquaredErrorRanker(TorchRankerNetwork):
    """A backbone trained with a squared error."""

    head: Head

    def __init__(
        self,
        config: ModelConfig,
        schema: Schema,
        rows: Mapping[str, int],
        pieces: Mapping[str, int],
        target_sample: Tensor,
    ) -> None:
        super().__init__(config, schema, rows, pieces, target_sample)
        self.head = SquaredErrorHead(self.features)


class _RankerTrainer(Trainer):
    """A trainer that reports no figures about a distribution, because a squared error has none."""

    def _profile(self) -> dict[str, float]:
        return {"steps": self.step, "train_rows": self.train_rows}


@dataclass(frozen=True)
class Vanilla:
    """A trained ranker. file: its ONNX form, with the output `features`."""

    file: Path
    checkpoint: Checkpoint


def train(ranker: str, loss: Loss, table: Table, config: TrainConfig, file: Path) -> Vanilla:
    """Train `ranker`, an import path, and write it to `file`."""
    model = ModelConfig(head="qr" if loss == "qr" else "cr", method="deterministic", own=ranker)

    def squared(model_config: ModelConfig, encoding: Encoding) -> Network:
        return build_network(SquaredErrorRanker, model_config, encoding)

    build: Build = squared if loss == "squared" else build_model
    checkpoint = _RankerTrainer(table, "bench", model, config, build=build).run()
    write(checkpoint, file)
    return Vanilla(file, checkpoint)


def write(checkpoint: Checkpoint, file: Path) -> None:
    """The backbone of a checkpoint as an ONNX file: raw features in, `features` [n, width] out."""
    g = GraphBuilder()
    inputs = {feature.name: g.input(feature.name, feature.type) for feature in checkpoint.schema.features}
    network = checkpoint.network
    assert isinstance(network, TorchRankerNetwork)
    g.output("features", foreign_backbone.phi(g, checkpoint, inputs), network.features)
    g.drop_unused()
    file.write_bytes(g.model({}).SerializeToString())
