"""A whole model: towers, backbone, posterior and head. Encoded features in, predictive distributions out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from learning.backbone import Backbone, Towers
from ghostless.heads.closed_forms import categorical, laplace
from ghostless.heads.closed_forms.categorical import Histogram
from ghostless.heads.closed_forms.quantile_mixture import QuantileMixture
from learning.config import ModelConfig
from ghostless.heads.posterior import Posterior
from learning.schema import Schema


class Predictive(Protocol):
    """What every head answers with: a distribution per row, in target units.

    Shapes: points y [p] -> [n, p], levels [q] -> [n, q], the rest [n]. A method that can't tell what it does not know
    has an epistemic part of 0.
    """

    @property
    def logit_variance(self) -> Tensor: ...
    def mean(self) -> Tensor: ...
    def aleatoric(self) -> Tensor: ...
    def epistemic(self) -> Tensor: ...
    def cdf(self, y: Tensor) -> Tensor: ...
    def density(self, y: Tensor) -> Tensor: ...
    def quantiles(self, levels: Tensor) -> Tensor: ...


# Encoded features [n] each -> the distributions of these rows.
Predict = Callable[[Mapping[str, Tensor]], Predictive]


def midpoint_levels(count: int) -> Tensor:
    """kappa_j = (j + 1/2) / K, [K]."""
    return (torch.arange(count, dtype=torch.float64) + 0.5).div(count).float()


def histogram_edges(low: float, high: float, bins: int) -> Tensor:
    """Edges [bins + 1] of uniform bins on [low, high]."""
    return torch.linspace(low, high, bins + 1, dtype=torch.float64).float()


def histogram_labels(y: Tensor, edges: Tensor) -> Tensor:
    """The bin of each target [n]; what lies at or beyond an outer edge belongs to the outer bin."""
    return torch.bucketize(y, edges[1:-1], right=True)


def log_frequencies(y: Tensor, edges: Tensor) -> Tensor:
    """Log shares [K] of a sample's bins, one pseudo-count a bin."""
    counts = torch.bincount(histogram_labels(y, edges), minlength=len(edges) - 1).float() + 1.0
    return torch.log(counts / counts.sum())


class QuantileHead(nn.Module):
    """QR: K conditional quantiles, trained by Theorem 1, read as a Gaussian mixture."""

    levels: Tensor

    def __init__(self, config: ModelConfig, features: int, novelty_columns: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("levels", midpoint_levels(config.levels))
        self.posterior = Posterior(config, features, novelty_columns, config.levels, scaled=True)

    def start_at(self, target_sample: Tensor) -> None:
        """Biases at the training marginal's quantiles: the first step already knows the histogram."""
        with torch.no_grad():
            self.posterior.bias.copy_(torch.quantile(target_sample.double(), self.levels.double()).float())

    def spread_parameters(self) -> list[nn.Parameter]:
        return self.posterior.covariance_parameters()

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        """Expected pinball loss averaged over levels, per row [n]: Theorem 1 but for its constant."""
        delta = y.unsqueeze(-1) - self.posterior.outputs(phi)
        if self.posterior.covariance is None:
            return torch.maximum(self.levels * delta, (self.levels - 1.0) * delta).mean(-1)
        variance = self.posterior.variance(phi)
        s = torch.sqrt(variance if variance.dim() == 2 else variance.unsqueeze(-1)) * self.posterior.scales
        return laplace.expected_pinball(delta, s, self.levels).mean(-1)

    def kl(self) -> Tensor:
        """On the scale of `loss`: Theorem 1 divides the data term by sigma, and `loss` averages over levels."""
        return self.posterior.kl() * (self.config.sigma / self.config.levels)

    def predict(self, phi: Tensor) -> QuantileMixture:
        return self.read(self.posterior.outputs(phi), phi)

    def read(self, m: Tensor, phi: Tensor) -> QuantileMixture:
        """Quantiles m [n, K] as a distribution, with the posterior's variance at phi [n, D]."""
        variance = self.posterior.variance(phi)
        if variance.dim() == 2:
            variance = variance.mean(-1)
        return QuantileMixture.from_levels(
            m, variance, self.posterior.scales, self.config.groups, self.config.bandwidth
        )


class HistogramHead(nn.Module):
    """CR: logits of K bins, trained by the Jensen bound, read as a histogram."""

    edges: Tensor

    def __init__(self, config: ModelConfig, features: int, novelty_columns: int, low: float, high: float) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("edges", histogram_edges(low, high, config.bins))
        self.posterior = Posterior(config, features, novelty_columns, config.bins, scaled=False)

    def labels(self, y: Tensor) -> Tensor:
        """The bin of each target [n]."""
        return histogram_labels(y, self.edges)

    def start_at(self, target_sample: Tensor) -> None:
        """Biases at the training marginal's log frequencies."""
        with torch.no_grad():
            self.posterior.bias.copy_(log_frequencies(target_sample, self.edges))

    def spread_parameters(self) -> list[nn.Parameter]:
        return self.posterior.covariance_parameters()

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        """Jensen's upper bound of the expected cross-entropy, per row [n]."""
        m, label = self.posterior.outputs(phi), self.labels(y)
        variance = self.posterior.variance(phi)
        bound = categorical.jensen_bound if self.posterior.shared else categorical.jensen_bound_per_output
        return bound(m, variance, label)

    def kl(self) -> Tensor:
        return self.posterior.kl()

    def predict(self, phi: Tensor) -> Histogram:
        variance = self.posterior.variance(phi)
        if variance.dim() == 2:
            variance = variance.mean(-1)
        return Histogram(categorical.probit_softmax(self.posterior.outputs(phi), variance), variance, self.edges)


class Head(Protocol):
    """The last layer of any method, served or compared with."""

    def start_at(self, target_sample: Tensor) -> None:
        """Output biases at the training marginal, told by a sorted sample of targets [k]."""

    def spread_parameters(self) -> list[nn.Parameter]:
        """What shapes the posterior's covariance; it is trained with longer steps."""
        ...

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        """Data term per row [n] for phi [n, D], y [n]."""
        ...

    def kl(self) -> Tensor:
        """KL term of the whole posterior, on the scale of a sum of `loss` over all rows."""
        ...

    def predict(self, phi: Tensor) -> Predictive: ...


class Network(nn.Module):
    """Towers, backbone and a head. Built from a schema and what the training data said of it: table heights and id
    counts. Subclasses add the head."""

    head: Head

    def __init__(
        self, config: ModelConfig, schema: Schema, rows: Mapping[str, int], counts: Mapping[str, Tensor]
    ) -> None:
        super().__init__()
        self.config = config
        self.schema = schema
        self.towers = Towers(schema.features, rows, counts, config)
        self.backbone = Backbone(self.towers.width, config)

    @property
    def novelty_columns(self) -> int:
        """How many of phi's last columns are novelty columns."""
        return len(self.towers.ids)

    @property
    def features(self) -> int:
        """Width of phi."""
        return self.backbone.width + self.backbone.raw * self.towers.width + self.novelty_columns

    def phi(self, batch: Mapping[str, Tensor]) -> Tensor:
        """[f(x), x, novelty] of encoded features [n] each -> [n, D]."""
        x, novelty = self.towers(batch)
        parts = (self.backbone(x), x, novelty) if self.backbone.raw else (self.backbone(x), novelty)
        return torch.cat(parts, -1)

    def settle(self, batches: Iterable[Mapping[str, Tensor]]) -> None:
        """What is computed once, over all training rows, when the weights are final: for the served heads nothing."""

    def forward(self, batch: Mapping[str, Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
        """Data term averaged over the batch, and the KL term on the same scale (to be weighted by beta / N)."""
        loss: Tensor = self.head.loss(self.phi(batch), y).mean()
        return loss, self.head.kl()

    def predict(self, batch: Mapping[str, Tensor]) -> Predictive:
        return self.head.predict(self.phi(batch))


class Model(Network):
    """A network with a head that is served."""

    head: QuantileHead | HistogramHead

    def __init__(
        self, config: ModelConfig, schema: Schema, rows: Mapping[str, int], counts: Mapping[str, Tensor]
    ) -> None:
        super().__init__(config, schema, rows, counts)
        features, novel = self.features, self.novelty_columns
        self.head = (
            QuantileHead(config, features, novel)
            if config.head == "qr"
            else HistogramHead(config, features, novel, schema.target.low, schema.target.high)
        )
