"""What a model is and how it is trained: frozen value objects, stored in every checkpoint."""

from dataclasses import dataclass
from typing import Literal

from ghostless.contract.errors import ConfigError
from ghostless.heads.bins import Binning
from ghostless.heads.config import CovarianceName, HeadName, PosteriorConfig, QuantileConfig

MethodName = Literal["vbll", "deterministic"]
# Last layers that are there to be compared with, and neither exported nor served (research.baselines).
BaselineName = Literal["gaussian", "sngp", "vbll", "evidential", "mdn", "cr-sngp"]
BackboneName = Literal["sn", "sn+raw", "spectral-residual"]


NOVELTY_SD = {"qr": 0.06, "cr": 0.1}


@dataclass(frozen=True)
class ModelConfig:
    """The architecture. `method` deterministic is the vanilla twin: same backbone and reconstruction, no posterior."""

    head: HeadName = "qr"
    method: MethodName = "vbll"
    # QR: `levels` midpoints of (0, 1), reconstructed as `groups` Gaussians (closed_forms.quantile_mixture).
    levels: int = 100
    groups: int = 25
    bandwidth: float = 1.5
    # Scale of the asymmetric Laplace likelihood; the smaller, the more a row weighs against the prior.
    sigma: float = 1.0
    # About how many segments the CDF has: CR's classes, QR's knots (heads.bins).
    bins: int = 40
    # adaptive: bins that follow the data, atoms, QR on a warped target. uniform: the paper's, in target units.
    binning: Binning = "adaptive"
    covariance: CovarianceName = "lowrank"
    rank: int = 16
    prior_scale: float = 1.0
    backbone: BackboneName = "sn+raw"
    hidden: tuple[int, ...] = (256, 128, 64)
    spectral_bound: float = 1.0
    dropout: float = 0.1
    # Share of ids that training replaces by the out-of-vocabulary row, so that unknown ids get a trained vector.
    id_dropout: float = 0.05
    # Whether phi carries 1 / sqrt(1 + n_id) for every id feature, and how much an unknown id alone adds to s.
    novelty: bool = True
    # 0 takes the head's own default: QR outputs are target values, CR outputs are logits.
    novelty_sd: float = 0.0
    # A baseline's last layer in place of the head's; `method` follows from it.
    baseline: BaselineName | None = None
    # Mixture density network: Gaussians a row.
    components: int = 5
    # Deep evidential regression: weight of the penalty on evidence for what was wrong (its lambda).
    evidence_weight: float = 0.01
    # SNGP: random Fourier features of the Gaussian process, and the length scale of its kernel over phi.
    random_features: int = 512
    length_scale: float = 2.0

    def __post_init__(self) -> None:
        if not self.novelty_sd:
            object.__setattr__(self, "novelty_sd", NOVELTY_SD[self.head])
        if self.baseline is not None:
            object.__setattr__(self, "method", "vbll" if self.baseline == "vbll" else "deterministic")
        if self.levels % self.groups:
            raise ConfigError(f"levels ({self.levels}) must be a multiple of groups ({self.groups})")
        for name in ("levels", "groups", "bins", "rank", "components", "random_features"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("bandwidth", "sigma", "prior_scale", "spectral_bound", "novelty_sd", "length_scale"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, not {getattr(self, name)}")
        if self.evidence_weight < 0:
            raise ConfigError(f"evidence_weight must not be negative, got {self.evidence_weight}")
        for name in ("dropout", "id_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must lie in [0, 1), not {getattr(self, name)}")

    @property
    def posterior(self) -> PosteriorConfig:
        """What the head's last layer is made of."""
        covariance = self.covariance if self.method == "vbll" else None
        return PosteriorConfig(covariance, self.rank, self.prior_scale, self.novelty_sd)

    @property
    def quantile(self) -> QuantileConfig:
        """What a QR head is made of."""
        return QuantileConfig(self.levels, self.groups, self.bandwidth, self.sigma)


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    epochs: int = 5
    batch_rows: int = 2048
    # Held for the first half of the steps, then falling linearly to 0.
    learning_rate: float = 2e-3
    # L2 penalty of the embedding tables: most ids have few rows, and without it their vectors learn these by heart.
    embedding_decay: float = 1e-4
    # Weight of KL / N.
    beta: float = 0.1
    seed: int = 0
    # Share of all rows held out as the test part, by `seed`; 0 holds out none.
    test: float = 0.2
    # Share of the remaining rows held out for validation and early stopping; 0 trains on all of them.
    validation: float = 0.0
    # Epochs without a better validation loss before training stops; 0 never stops early.
    patience: int = 0
    # Share of the rows outside the test part that training never sees: they calibrate the distributions.
    calibration: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_rows < 1:
            raise ConfigError(f"epochs ({self.epochs}) and batch_rows ({self.batch_rows}) must be at least 1")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate must be positive, not {self.learning_rate}")
        for name in ("beta", "embedding_decay"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("test", "validation", "calibration"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must lie in [0, 1), not {getattr(self, name)}")
        if self.patience and not self.validation:
            raise ConfigError("early stopping (patience) needs a validation share")
