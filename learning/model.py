"""A whole model: towers, backbone, posterior and head, from encoded features to predictive distributions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from ghostless.heads import optimal_covariance
from ghostless.heads.bins import Bins, adaptive_bins, grid_bins, uniform_bins
from ghostless.heads.effect_variance import EffectVariance
from ghostless.heads.histogram import HistogramHead
from ghostless.heads.predictive import KnotPredictive, Predictive
from ghostless.heads.quantile import QuantileHead
from ghostless.heads.warp import rank_warp
from learning.backbone import Backbone, Towers
from learning.config import ModelConfig
from learning.errors import DataError
from learning.schema import Schema, Target

# Number of segments of the grid on which quantiles in target units are read (`binning` uniform).
GRID_SEGMENTS = 300

# Encoded features [n] each -> the distributions of these rows.
Predict = Callable[[Mapping[str, Tensor]], Predictive]


class Head(Protocol):
    """The last layer of any method, served or for comparison."""

    def start_at(self, target_sample: Tensor) -> None:
        """Initialise the output biases at the training marginal, given by a sorted sample of targets [k]."""

    def spread_parameters(self) -> list[nn.Parameter]:
        """Parameters of the posterior's covariance; they are trained with a higher learning rate."""
        ...

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        """Data term per row [n] for phi [n, D], y [n]."""
        ...

    def kl(self) -> Tensor:
        """KL term of the whole posterior, on the scale of a sum of `loss` over all rows."""
        ...

    def predict(self, phi: Tensor) -> Predictive: ...


class Network(nn.Module):
    """Towers, backbone and a head. Subclasses add the head.

    rows: number of table rows by feature. pieces: number of pieces of every number's encoding. Both come from the
    training data.
    """

    head: Head

    def __init__(
        self,
        config: ModelConfig,
        schema: Schema,
        rows: Mapping[str, int],
        pieces: Mapping[str, int],
        target_sample: Tensor,
    ) -> None:
        super().__init__()
        self.config = config
        self.schema = schema
        self.build_backbone(rows, pieces)

    def build_backbone(self, rows: Mapping[str, int], pieces: Mapping[str, int]) -> None:
        """Create everything below the head."""
        self.towers = Towers(self.schema.features, rows, pieces, self.config)
        self.backbone = Backbone(self.towers.width, self.config)

    @property
    def features(self) -> int:
        """Width of phi."""
        return self.backbone.width + self.backbone.raw * self.backbone.inputs

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers; after pruning they are smaller than in the configuration."""
        return self.backbone.hidden

    def tables(self) -> list[nn.Parameter]:
        """Embedding tables, which have their own learning rate and penalty."""
        return [self.towers.tables[name].get_parameter("weight") for name in self.towers.tables]

    def activations(self, batch: Mapping[str, Tensor]) -> list[Tensor]:
        """Outputs of the hidden layers, [n, width] each."""
        return self.backbone.activations(self.backbone.expand(self.towers(batch)))

    def phi(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Encoded features [n] each -> [f, x, cross layer of x] [n, D], without the parts that this backbone omits."""
        inputs = self.backbone.expand(self.towers(batch))
        f: Tensor = self.backbone(inputs)
        return torch.cat((f, inputs), -1) if self.backbone.raw else f

    def observe(self, batches: Iterable[Mapping[str, Tensor]]) -> None:
        """Hook that receives all training rows once before training, in their order."""

    def settle(self, batches: Iterable[Mapping[str, Tensor]], beta: float) -> None:
        """Compute everything that depends on all training rows, after the weights are final. beta: weight of the KL
        term."""

    def forward(self, batch: Mapping[str, Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
        """Data term averaged over the batch, and the KL term on the same scale (to be weighted by beta / N)."""
        loss: Tensor = self.head.loss(self.phi(batch), y).mean()
        return loss, self.head.kl()

    def predict(self, batch: Mapping[str, Tensor]) -> Predictive:
        return self.head.predict(self.phi(batch))

    def uncalibrated(self, batch: Mapping[str, Tensor]) -> Predictive:
        """The distributions without the calibration map of a served head; ensembles and pools average these."""
        return self.predict(batch)


class Model(Network):
    """A network with a head that can be served. effects: the fitted effects of the ids (learning.id_effects), or None
    if there are none."""

    head: QuantileHead | HistogramHead
    effects: EffectVariance | None = None

    def __init__(
        self,
        config: ModelConfig,
        schema: Schema,
        rows: Mapping[str, int],
        pieces: Mapping[str, int],
        target_sample: Tensor,
    ) -> None:
        """target_sample [k]: training targets, which determine bins and warp."""
        super().__init__(config, schema, rows, pieces, target_sample)
        # `build_backbone` may have changed the configuration.
        config = self.config
        bins = choose_bins(config, schema.target, target_sample)
        if config.head == "qr":
            z = bins.knots if config.binning == "uniform" else rank_warp(bins, target_sample.numpy())
            self.head = QuantileHead(config.quantile, config.posterior, self.features, bins, z)
        else:
            self.head = HistogramHead(bins, config.posterior, self.features)

    @torch.no_grad()
    def settle(self, batches: Iterable[Mapping[str, Tensor]], beta: float) -> None:
        """Set CR's covariance to its optimum, which has a closed form; training only comes close to it."""
        posterior = self.head.posterior
        if not isinstance(self.head, HistogramHead) or posterior.covariance is None or not posterior.shared or not beta:
            return
        gram = torch.zeros(self.features, self.features, dtype=torch.float64)
        for batch in batches:
            phi = self.phi(batch)
            gram += (phi.T @ phi).double()
        outputs = len(self.head.classes)
        optimal_covariance.fit(posterior, optimal_covariance.precision(gram, beta, outputs, posterior.tau))

    def predict(self, batch: Mapping[str, Tensor]) -> KnotPredictive:
        return self.head.predict(self.phi(batch), None if self.effects is None else self.effects(batch))

    def uncalibrated(self, batch: Mapping[str, Tensor]) -> Predictive:
        return self.head.uncalibrated(self.phi(batch))


def choose_bins(config: ModelConfig, target: Target, target_sample: Tensor) -> Bins:
    """The knots of a model's CDF; the same for both heads of a configuration, except with the paper's bins."""
    if not target.is_bounded:
        raise DataError(f"target '{target.name}' has no range; give low and high, or use data.target_range.with_range")
    low, high = target.low, target.high
    if config.binning == "adaptive":
        return adaptive_bins(target_sample.numpy(), low, high, config.bins)
    return uniform_bins(low, high, config.bins) if config.head == "cr" else grid_bins(low, high, GRID_SEGMENTS)
