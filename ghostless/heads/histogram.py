"""CR: a histogram of the target with a Variational Bayesian Last Layer."""

import torch
from torch import Tensor, nn

from ghostless.heads.closed_forms import categorical
from ghostless.heads.closed_forms.categorical import Histogram
from ghostless.heads.config import PosteriorConfig
from ghostless.heads.posterior import Posterior


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


class HistogramHead(nn.Module):
    """CR: logits of K bins, trained by the Jensen bound, read as a histogram."""

    edges: Tensor

    def __init__(self, edges: Tensor, posterior: PosteriorConfig, features: int, novelty_columns: int = 0) -> None:
        """edges [K + 1]: the bins on the target's range."""
        super().__init__()
        self.register_buffer("edges", edges)
        self.posterior = Posterior(posterior, features, novelty_columns, len(edges) - 1, scaled=False)

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
