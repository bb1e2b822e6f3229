"""The paper's 15 methods: what is trained, how a distribution is obtained from it, and what is tuned.

All have the same backbone, training loop, budget of steps and the paper's uniform bins. Each trained method is tuned
over six settings: two learning rates times two penalties on the embeddings, the same for all, then two more values of
its most important hyperparameter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ghostless.contract.errors import ConfigError
from learning.config import ModelConfig, TrainConfig

# single: one pass. conformal: shifted by held-out rows. dropout: many passes. ensemble: five networks.
Reading = Literal["single", "conformal", "dropout", "ensemble"]
Family = Literal["parametric", "qr", "cr", "ensemble", "trees"]
Setting = Mapping[str, Any]

ENSEMBLE_SIZE = 5
# A decay of None is the default of `ghostless train`, which depends on the number of rows.
RATES, DECAYS = (4e-3, 2e-3), (None, 1e-2)
_MODEL_FIELDS = {field.name for field in fields(ModelConfig)}


@dataclass(frozen=True)
class ComparedMethod:
    """`options` are those of ModelConfig. `knob`: the method's own hyperparameter, with the values to try in addition
    to its default. `as_tuned`: the method whose networks and setting it uses."""

    name: str
    label: str
    family: Family
    options: Setting
    knob: tuple[str, tuple[float, float]] | None = None
    reading: Reading = "single"
    as_tuned: str = ""

    def grid(self) -> list[Setting]:
        """The settings tried first, the same for all methods."""
        return [{"learning_rate": rate, "embedding_decay": decay} for rate in RATES for decay in DECAYS]

    def refined(self, best: Setting) -> list[Setting]:
        """The settings tried next: the best of the grid with the other values of the method's own hyperparameter."""
        if self.knob is None:
            return []
        name, values = self.knob
        return [{**best, name: value} for value in values]

    def configured(self, setting: Setting, train: TrainConfig) -> tuple[ModelConfig, TrainConfig]:
        """The model and the training run of one setting."""
        model = {name: value for name, value in setting.items() if name in _MODEL_FIELDS}
        rest = {name: value for name, value in setting.items() if name not in _MODEL_FIELDS}
        return ModelConfig(**{"binning": "uniform", **self.options, **model}), replace(train, **rest)


# MC dropout uses the vanilla networks, so these are trained with some dropout.
_VANILLA = {"method": "deterministic", "dropout": 0.1}
_QR, _CR = {"head": "qr", **_VANILLA}, {"head": "cr", **_VANILLA}
_RATE = ("learning_rate", (1e-3, 5e-4))
_DROPOUT = ("dropout", (0.05, 0.2))
_BETA = ("beta", (0.02, 1.0))
_LENGTH = ("length_scale", (1.0, 4.0))

METHODS = (
    ComparedMethod("gaussian", "Gaussian", "parametric", {"baseline": "gaussian"}, _RATE),
    ComparedMethod("sngp", "SNGP", "parametric", {"baseline": "sngp"}, _LENGTH),
    ComparedMethod("vbll", "VBLL", "parametric", {"baseline": "vbll"}, _BETA),
    ComparedMethod("der", "DER", "parametric", {"baseline": "evidential"}, ("evidence_weight", (0.001, 0.1))),
    ComparedMethod("mdn", "MDN", "parametric", {"baseline": "mdn"}, _RATE),
    ComparedMethod("qr", "Vanilla QR", "qr", _QR, _DROPOUT),
    ComparedMethod("cqr", "CQR", "qr", _QR, reading="conformal", as_tuned="qr"),
    ComparedMethod("qr-mcd", "QR-MCD", "qr", _QR, reading="dropout", as_tuned="qr"),
    ComparedMethod("qr-vbll", "QR-VBLL", "qr", {"head": "qr", "method": "vbll"}, _BETA),
    ComparedMethod("cr", "Vanilla CR", "cr", _CR, _DROPOUT),
    ComparedMethod("cr-sngp", "CR-SNGP", "cr", {"head": "cr", "baseline": "cr-sngp"}, _LENGTH),
    ComparedMethod("cr-mcd", "CR-MCD", "cr", _CR, reading="dropout", as_tuned="cr"),
    ComparedMethod("cr-vbll", "CR-VBLL", "cr", {"head": "cr", "method": "vbll"}, _BETA),
    ComparedMethod(
        "ensemble", "Ensemble", "ensemble", {"baseline": "gaussian"}, reading="ensemble", as_tuned="gaussian"
    ),
    ComparedMethod("qr-ensemble", "QR-Ensemble", "ensemble", _QR, reading="ensemble", as_tuned="qr"),
    ComparedMethod("cr-ensemble", "CR-Ensemble", "ensemble", _CR, reading="ensemble", as_tuned="cr"),
)
BY_NAME = {method.name: method for method in METHODS}
# Not a method of the paper, not a network, and not tuned (research.comparison.boosted).
BOOSTED = ComparedMethod("lightgbm", "LightGBM", "trees", {})


def chosen(names: str) -> list[ComparedMethod]:
    """The methods named in a comma-separated list, in the table's order; "all" means all."""
    rows = (*METHODS, BOOSTED)
    if names == "all":
        return list(rows)
    wanted = {name.strip() for name in names.split(",")}
    known = [method.name for method in rows]
    unknown = sorted(wanted.difference(known))
    if unknown:
        raise ConfigError(f"no method {', '.join(unknown)}; expected all, or some of {', '.join(known)}")
    return [method for method in rows if method.name in wanted]
