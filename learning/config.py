"""Configuration of the architecture and of training: frozen value objects, stored in every checkpoint."""

from dataclasses import dataclass
from typing import Literal

from ghostless.contract.errors import ConfigError
from ghostless.heads.bins import Binning
from ghostless.heads.config import CovarianceName, HeadName, PosteriorConfig, QuantileConfig

MethodName = Literal["vbll", "deterministic"]
# Last layers for comparisons only, which are neither exported nor served (research.baselines).
BaselineName = Literal["gaussian", "sngp", "vbll", "evidential", "mdn", "cr-sngp"]
BackboneName = Literal["cross", "sn+cross", "sn", "sn+raw", "spectral-residual"]
ActivationName = Literal["silu", "leaky", "relu"]

# Default activation of each backbone. The paper uses spectral norm with ReLU; together with the cross layer this leaves
# units that never fire, so `sn+cross` uses a leaky ReLU (slope 0.1).
ACTIVATIONS: dict[BackboneName, ActivationName] = {
    "cross": "silu",
    "sn+cross": "leaky",
    "sn": "relu",
    "sn+raw": "relu",
    "spectral-residual": "relu",
}


# More calibration rows gain nothing measurable: at 20,000 the standard error of coverage is 0.2%.
MOST_CALIBRATION_ROWS = 20_000
# The L2 penalty of the embeddings has the weight of this many rows, independent of the number of rows.
DECAY_ROWS = 250.0
# Value of `ModelConfig.own` for a frozen ranker, which is not trained and which ONNX Runtime runs.
FROZEN = "onnx"


@dataclass(frozen=True)
class ModelConfig:
    """The architecture. With `method` deterministic it is the vanilla twin: same backbone and reconstruction, no
    posterior."""

    head: HeadName = "qr"
    method: MethodName = "vbll"
    # QR: `levels` midpoints of (0, 1), reconstructed as `groups` Gaussians (closed_forms.quantile_mixture).
    levels: int = 100
    groups: int = 25
    bandwidth: float = 1.5
    # Scale of the asymmetric Laplace likelihood; a smaller scale gives a row more weight relative to the prior.
    sigma: float = 1.0
    # Approximate number of segments of the CDF: CR's classes, QR's knots (heads.bins).
    bins: int = 40
    # adaptive: bins that follow the data, atoms, QR on a warped target. uniform: the paper's bins, in target units.
    binning: Binning = "adaptive"
    covariance: CovarianceName = "lowrank"
    rank: int = 8
    prior_scale: float = 1.0
    backbone: BackboneName = "cross"
    # None means the backbone's default (ACTIVATIONS).
    activation: ActivationName | None = None
    # Import path `package.module:Class` of a user-supplied backbone, which replaces the built-in one, and its keyword
    # arguments as a JSON object (learning.own.torch_ranker); FROZEN for a ranker in an ONNX file (learning.own.frozen).
    own: str = ""
    own_options: str = "{}"
    # Maximum rank of the cross layer's matrix; it has full rank if two factors would cost more.
    cross_rank: int = 128
    hidden: tuple[int, ...] = (192, 64)
    spectral_bound: float = 1.0
    dropout: float = 0.0
    # Share of ids that training replaces by the out-of-vocabulary row, so that unknown ids get a trained vector.
    id_dropout: float = 0.05
    # Whether the last columns of the ids' embeddings are their fitted effects (learning.effect_inputs).
    effect_inputs: bool = True
    # Last layer of a baseline instead of the head; it determines `method`.
    baseline: BaselineName | None = None
    # Mixture density network: number of Gaussians per row.
    components: int = 5
    # Deep evidential regression: weight lambda of the penalty on evidence for wrong predictions.
    evidence_weight: float = 0.01
    # SNGP: random Fourier features of the Gaussian process, and the length scale of its kernel over phi.
    random_features: int = 512
    length_scale: float = 2.0

    def __post_init__(self) -> None:
        if self.baseline is not None:
            object.__setattr__(self, "method", "vbll" if self.baseline == "vbll" else "deterministic")
        if self.levels % self.groups:
            raise ConfigError(f"levels ({self.levels}) must be a multiple of groups ({self.groups})")
        for name in ("levels", "groups", "bins", "rank", "cross_rank", "components", "random_features"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("bandwidth", "sigma", "prior_scale", "spectral_bound", "length_scale"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, not {getattr(self, name)}")
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"hidden needs at least one width, each at least 1, got {self.hidden}")
        if self.evidence_weight < 0:
            raise ConfigError(f"evidence_weight must not be negative, got {self.evidence_weight}")
        for name in ("dropout", "id_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must lie in [0, 1), not {getattr(self, name)}")

    @property
    def posterior(self) -> PosteriorConfig:
        """Configuration of the head's last layer."""
        covariance = self.covariance if self.method == "vbll" else None
        return PosteriorConfig(covariance, self.rank, self.prior_scale)

    @property
    def quantile(self) -> QuantileConfig:
        """Configuration of a QR head."""
        return QuantileConfig(self.levels, self.groups, self.bandwidth, self.sigma)

    @property
    def activation_name(self) -> ActivationName:
        """The configured activation, or the backbone's default."""
        return self.activation or ACTIVATIONS[self.backbone]


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    # Passes over the training part, or steps; if neither is given, learning.schedule sets a budget.
    epochs: int | None = None
    steps: int | None = None
    # None means a tenth of the training rows, between 128 and 1,024. With batches of 1,024 rows, a small table has so
    # few steps per pass that noise stops training early (20 numbers, 2,700 rows: CRPS is 1.06 times LightGBM's, and
    # 0.97 times with batches of 256 rows).
    batch_rows: int | None = None
    # Learning rate of Adam after `warmup_steps`; constant for the first half of the steps, then falling linearly to 0.
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    # Learning rate of embedding tables as a multiple of `learning_rate`. It is higher because a step has few rows of
    # each id.
    embedding_rate: float = 4.0
    # L2 penalty of embedding tables; None means DECAY_ROWS / training rows. Most ids have few rows, and without a
    # penalty their embeddings memorise them.
    embedding_decay: float | None = None
    # Share of the weights' moving average that a step keeps; 0 means no averaging. The average is validated and stored.
    average: float = 0.99
    # Weight of KL / N.
    beta: float = 0.1
    seed: int = 0
    # Share of all rows held out as the test part, by `seed`; 0 holds out none.
    test: float = 0.2
    # Share of the rows outside the test part that are not used to fit weights, at most MOST_CALIBRATION_ROWS. They
    # calibrate the distribution, and decide early stopping if there is no validation part.
    calibration: float = 0.1
    # Share of the remaining rows held out for choosing between models; if there are any, they decide early stopping.
    validation: float = 0.0
    # Number of times that the held-out loss is computed, evenly over the steps; an interrupted run resumes from the
    # last one.
    validations: int = 25
    # Training stops after this many validations without a lower loss; 0 never stops early.
    patience: int = 6

    def __post_init__(self) -> None:
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(f"give epochs ({self.epochs}) or steps ({self.steps}), not both")
        for name in ("epochs", "steps", "batch_rows", "validations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        for name in ("learning_rate", "embedding_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("beta", "embedding_decay", "warmup_steps", "patience"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("test", "validation", "calibration", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must lie in [0, 1), not {getattr(self, name)}")
