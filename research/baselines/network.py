"""A network with a head that is used only for comparison."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ghostless.contract.errors import ConfigError
from learning.checkpoint import build_network
from learning.config import ModelConfig
from learning.data.encoding import Encoding
from learning.model import Head, Model, Network
from learning.schema import Schema
from research.baselines.parametric import EvidentialHead, GaussianHead, MixtureDensityHead
from research.baselines.random_features import LaplaceHead, ProcessHistogramHead, ProcessRegressionHead
from research.baselines.variational import VariationalRegressionHead


def build_compared(config: ModelConfig, encoding: Encoding) -> Network:
    """An untrained network of any method, baseline or served."""
    return build_network(BaselineNetwork if config.baseline else Model, config, encoding)


class BaselineNetwork(Network):
    def __init__(
        self,
        config: ModelConfig,
        schema: Schema,
        rows: Mapping[str, int],
        pieces: Mapping[str, int],
        target_sample: Tensor,
    ) -> None:
        super().__init__(config, schema, rows, pieces, target_sample)
        self.head = self._head()

    def _head(self) -> Head:
        config, target = self.config, self.schema.target
        low, high = target.low, target.high
        features, span = self.features, high - low
        match config.baseline:
            case "gaussian":
                return GaussianHead(config, features, span)
            case "mdn":
                return MixtureDensityHead(config, features, span)
            case "evidential":
                return EvidentialHead(config, features, span)
            case "vbll":
                return VariationalRegressionHead(config, features)
            case "sngp":
                return ProcessRegressionHead(config, features)
            case "cr-sngp":
                return ProcessHistogramHead(config, features, low, high)
            case None:
                raise ConfigError("a baseline's network needs the baseline's name")

    @torch.no_grad()
    def settle(self, batches: Iterable[Mapping[str, Tensor]], beta: float) -> None:
        if isinstance(self.head, LaplaceHead):
            self.head.process.forget()
            for batch in batches:
                self.head.observe(self.phi(batch))
            self.head.process.settle()
