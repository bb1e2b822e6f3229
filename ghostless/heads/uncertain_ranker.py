"""Adds an uncertainty head to any PyTorch backbone, for use in your own training loop.

    ranker = UncertainRanker(backbone, width=64, targets=y_train)      # instead of the output layer
    loss = ranker.loss(features, y)                                     # in the loop, instead of the old loss
    ranker.finish(training_batches, held_out_features, held_out_y)      # after the loop: covariance and calibration
    ranker.fit_effects(ids_train, y_train, ids_held_out, held_out_features)   # uncertainty about each id
    predictive = ranker.predict(features, ids)                          # mean, quantiles, aleatoric, epistemic

`features` is whatever the backbone accepts; it is passed to the backbone unchanged.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ghostless.contract.errors import ConfigError
from ghostless.contract.pair_test import PairRows, PairTest, pair_figures
from ghostless.heads import optimal_covariance
from ghostless.heads.bins import adaptive_bins
from ghostless.heads.calibration import Calibration
from ghostless.heads.config import HeadName, PosteriorConfig, QuantileConfig
from ghostless.heads.effect_variance import EffectVariance
from ghostless.heads.effects import EffectRows, SideColumns
from ghostless.heads.histogram import HistogramHead
from ghostless.heads.posterior import Posterior
from ghostless.heads.predictive import KnotPredictive
from ghostless.heads.quantile import QuantileHead
from ghostless.heads.warp import rank_warp

Ids = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class IdCodes:
    """The sorted known ids of one feature, and the number of rows with each. Code 0 stands for every other id."""

    known: np.ndarray[Any, Any]
    counts: np.ndarray[Any, Any]

    @classmethod
    def of(cls, values: np.ndarray[Any, Any]) -> "IdCodes":
        return cls(*np.unique(values, return_counts=True))

    def codes(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """int64 [n]: 0 for an unknown id, else 1 + its position in `known`."""
        place = np.minimum(np.searchsorted(self.known, values), len(self.known) - 1)
        return np.where(self.known[place] == values, place + 1, 0).astype(np.int64)


class UncertainRanker(nn.Module):
    """phi = backbone(features) [n, width], under a quantile (`qr`) or histogram (`cr`) head with a variational
    posterior."""

    head: HistogramHead | QuantileHead

    def __init__(
        self,
        backbone: nn.Module,
        width: int,
        targets: np.ndarray[Any, Any] | Tensor,
        head: HeadName = "cr",
        bins: int = 40,
        beta: float = 0.1,
        posterior: PosteriorConfig | None = None,
        quantile: QuantileConfig | None = None,
    ) -> None:
        """width: number of columns of the backbone's output. targets [N]: targets of all training rows; they determine
        the range and the bins, and N determines the weight of the prior. beta: weight of the KL term."""
        super().__init__()
        y = np.asarray(targets, np.float32).ravel()
        if not len(y) or not np.isfinite(y).all() or y.min() == y.max():
            raise ConfigError("targets must be finite and not all equal: they set the range of the distribution")
        self.backbone, self.width, self.beta, self.training_rows = backbone, width, beta, len(y)
        self.effects: EffectVariance | None = None
        self._ids: dict[str, IdCodes] = {}
        found = adaptive_bins(y, float(y.min()), float(y.max()), bins)
        shape = posterior or PosteriorConfig()
        if head == "qr":
            self.head = QuantileHead(quantile or QuantileConfig(), shape, width, found, rank_warp(found, y))
        else:
            self.head = HistogramHead(found, shape, width)
        self.head.start_at(torch.from_numpy(np.sort(y)))

    def phi(self, features: Any) -> Tensor:
        """The backbone's output, checked: float32 [n, width]."""
        output = self.backbone(features)
        if not isinstance(output, Tensor) or output.dim() != 2 or output.shape[1] != self.width:
            shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ConfigError(f"the backbone returns {shape}, expected a tensor of shape [rows, {self.width}]")
        return output

    def loss(self, features: Any, y: Tensor) -> Tensor:
        """Mean loss of a batch, including its share of the KL term."""
        data: Tensor = self.head.loss(self.phi(features), y).mean()
        return data + self.head.kl() * (self.beta / self.training_rows)

    def parameter_groups(self, learning_rate: float, spread_rate: float = 20.0) -> list[dict[str, Any]]:
        """Parameter groups for an optimizer. The parameters of the posterior's covariance change by several units while
        weights change by fractions, so their learning rate is higher."""
        spread = self.head.spread_parameters()
        apart = {id(parameter) for parameter in spread}
        rest = [parameter for parameter in self.parameters() if id(parameter) not in apart]
        return [{"params": rest, "lr": learning_rate}, {"params": spread, "lr": learning_rate * spread_rate}]

    @torch.no_grad()
    def finish(self, batches: Iterable[Any], features: Any, y: Tensor) -> Calibration:
        """Compute the covariance of a `cr` head from the features of all training batches, and fit the calibration to
        held-out rows. Call this after training; it puts the ranker into evaluation mode."""
        self.eval()
        posterior: Posterior = self.head.posterior
        if isinstance(self.head, HistogramHead) and posterior.covariance is not None and posterior.shared and self.beta:
            gram = torch.zeros(self.width, self.width, dtype=torch.float64)
            for batch in batches:
                phi = self.phi(batch)
                gram += (phi.T @ phi).double()
            outputs = len(self.head.classes)
            optimal_covariance.fit(posterior, optimal_covariance.precision(gram, self.beta, outputs, posterior.tau))
        return self.head.calibrate(self.phi(features), y)

    @torch.no_grad()
    def fit_effects(
        self, ids: Ids, y: np.ndarray[Any, Any] | Tensor, held_out_ids: Ids, held_out: Any, context: Iterable[str] = ()
    ) -> EffectVariance:
        """Fit the effects of ids to training rows; they determine how much each id adds to the epistemic variance.

        Call this after `finish`. ids: raw ids [N] by feature. held_out: features of rows that were not used for
        training; held_out_ids: their ids. context: features that all candidates of a request share, such as the user.
        """
        self._ids = {name: IdCodes.of(np.asarray(values)) for name, values in ids.items()}
        codes = np.stack([self._ids[name].codes(np.asarray(values)) for name, values in ids.items()], 1)
        target = np.asarray(y, np.float32).ravel()
        nothing = np.zeros((len(target), 0), np.float32)
        heights = [len(found.known) + 1 for found in self._ids.values()]
        rows = EffectRows(tuple(ids), heights, (), codes, SideColumns(nothing.astype(np.int64), nothing), target)
        found = EffectVariance(rows.fit(), frozenset(context), gamma=1)
        total = self.head.predict(self.phi(held_out)).variance().double().numpy()
        self.effects = found.levelled(self._codes(held_out_ids), total)
        return self.effects

    def predict(self, features: Any, ids: Ids | None = None) -> KnotPredictive:
        """Calibrated distributions. With ids [n] by feature and fitted effects, the epistemic variance includes the
        uncertainty about these ids."""
        own = None
        if ids is not None and self.effects is not None:
            own = self.effects({name: torch.from_numpy(codes) for name, codes in self._codes(ids).items()})
        return self.head.predict(self.phi(features), own)

    @torch.no_grad()
    def judge_pairs(self, features: Any, ids: Ids, y: np.ndarray[Any, Any] | Tensor) -> PairTest:
        """Run the pair test of the epistemic variance (ghostless.contract.pair_test) on rows that were not used for
        any fit."""
        if self.effects is None:
            raise ConfigError("there are no effects to judge; call fit_effects first")
        predictive = self.predict(features, ids)
        codes = self._codes(ids)
        scale = np.sqrt(self.effects.scale(codes, predictive.variance().double().numpy()))[:, None]
        roots = {name: self.effects.roots(codes, name) * scale for name in self.effects.names}
        counts = {name: np.concatenate([[0], found.counts]) for name, found in self._ids.items()}
        residual = np.asarray(y, np.float64).ravel() - predictive.mean().double().numpy()
        history = {name: counts[name][rows] for name, rows in codes.items()}
        rows = PairRows(residual, roots, {name: np.asarray(values) for name, values in ids.items()}, history)
        return PairTest(len(residual), tuple(pair_figures(rows)))

    def _codes(self, ids: Ids) -> dict[str, np.ndarray[Any, Any]]:
        missing = [name for name in self._ids if name not in ids]
        if missing:
            raise ConfigError(f"ids have no '{missing[0]}', which effects were fitted to")
        return {name: found.codes(np.asarray(ids[name])) for name, found in self._ids.items()}
