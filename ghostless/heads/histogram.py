"""CR: a histogram of the target with a Variational Bayesian Last Layer."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ghostless.heads.bins import Bins
from ghostless.heads.calibrated_head import CalibratedHead
from ghostless.heads.calibration import Calibration, apply_map, fit_temperature
from ghostless.heads.closed_forms import categorical
from ghostless.heads.closed_forms.categorical import Decomposition
from ghostless.heads.config import PosteriorConfig
from ghostless.heads.effect_variance import RowEffects
from ghostless.heads.posterior import Posterior
from ghostless.heads.predictive import KnotPredictive


@dataclass(frozen=True)
class Histogram(KnotPredictive):
    """The CR predictive distribution: probabilities p [n, K] of bins with edges [K + 1], logit variance s2 [n].

    Edges do not decrease; a bin of zero width is an atom.
    """

    p: Tensor
    s2: Tensor
    edges: Tensor
    temperature: Tensor | float = 1.0
    effects: RowEffects | None = None

    @property
    def knots(self) -> Tensor:
        return self.edges

    @property
    def heights(self) -> Tensor:
        return categorical.cdf_at_edges(self.p)

    @property
    def masses(self) -> Tensor:
        return self.p

    @property
    def logit_variance(self) -> Tensor:
        return self.s2

    def last_layer_variance(self) -> Tensor:
        return categorical.target_moments(self.p, self.s2, self.edges, self.temperature)[1].delta

    def gini(self) -> Decomposition:
        """Gini impurity, split in the same ratio as the variance."""
        paper, total = categorical.gini_decomposition(self.p, self.s2), self.variance()
        share = self.epistemic() / total.clamp(min=torch.finfo(total.dtype).tiny)
        return replace(paper, epistemic=paper.total * share)


class HistogramHead(CalibratedHead):
    """CR: logits of K classes, trained by the Jensen bound, read as a histogram."""

    edges: Tensor
    classes: Tensor
    class_of_segment: Tensor

    def __init__(self, bins: Bins, posterior: PosteriorConfig, features: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.from_numpy(bins.knots).float())
        self.register_buffer("classes", torch.from_numpy(bins.classes))
        self.register_buffer("class_of_segment", torch.from_numpy(bins.class_of_segment))
        self.posterior = Posterior(posterior, features, len(bins.classes), scaled=False)

    @property
    def knots(self) -> Tensor:
        return self.edges

    def labels(self, y: Tensor) -> Tensor:
        """The class of each target [n]."""
        return self.class_of_segment[segments(y, self.edges)]

    def start_at(self, target_sample: Tensor) -> None:
        """Initialise the biases at the log frequencies of the training marginal."""
        with torch.no_grad():
            self.posterior.bias.copy_(log_frequencies(self.labels(target_sample), len(self.classes)))

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

    def uncalibrated(self, phi: Tensor) -> Histogram:
        """The distribution at the head's temperature, without its map; ensembles and pools average these."""
        m, variance = self._logits(phi)
        p = categorical.probit_softmax(m, variance, self.temperature)
        return Histogram(self._by_segment(p), variance, self.edges, self.temperature)

    def predict(self, phi: Tensor, effects: RowEffects | None = None) -> Histogram:
        raw = self.uncalibrated(phi)
        p = apply_map(raw.heights, self.map_heights).diff(dim=-1) if self.has_map else raw.p
        return Histogram(p, raw.s2, raw.edges, raw.temperature, effects)

    @torch.no_grad()
    def calibrate(self, phi: Tensor, y: Tensor) -> Calibration:
        """Fit and store temperature and map on rows that were not used for training: phi [n, D], y [n]."""
        m, variance = self._logits(phi)
        label = self.labels(y).unsqueeze(-1)
        scaled = m / torch.sqrt(1.0 + categorical.PROBIT * variance).unsqueeze(-1)

        def nll(temperature: float) -> float:
            return -torch.log_softmax(scaled / temperature, -1).gather(-1, label).double().mean().item()

        return self.fit_calibration(fit_temperature(nll) if len(y) else 1.0, phi, y)

    def _logits(self, phi: Tensor) -> tuple[Tensor, Tensor]:
        """m [n, K], and s^2 [n], which all logits of a row share."""
        variance = self.posterior.variance(phi)
        return self.posterior.outputs(phi), variance if variance.dim() == 1 else variance.mean(-1)

    def _by_segment(self, p: Tensor) -> Tensor:
        """Convert probabilities of classes [n, K] to those of segments [n, k - 1]; gaps of a discrete target get 0."""
        if len(self.classes) == len(self.edges) - 1:
            return p
        return p.new_zeros(len(p), len(self.edges) - 1).index_copy(1, self.classes, p)


def segments(y: Tensor, edges: Tensor) -> Tensor:
    """The segment of each target [n]: the atom at its value if there is one, else [edge, next edge). Values outside the
    edges belong to the first or last segment."""
    first = torch.searchsorted(edges, y.contiguous(), right=False)
    last = torch.searchsorted(edges, y.contiguous(), right=True) - 1
    return torch.minimum(first, last).clamp(0, len(edges) - 2)


def log_frequencies(labels: Tensor, count: int) -> Tensor:
    """Log shares [count] of a sample's labels [n], with one pseudo-count per class."""
    counts = torch.bincount(labels, minlength=count).float() + 1.0
    return torch.log(counts / counts.sum())
