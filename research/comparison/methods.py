"""The paper's 15 methods: what is trained, how it is read, and what is tuned.

All have the same backbone, loop and epochs and the paper's uniform bins. Each that is trained is tuned over six
settings: two learning rates times two penalties on the embeddings, the same for all, then two more values of the knob
that matters most to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ghostless.contract.errors import ConfigError
from learning.config import ModelConfig, TrainConfig

# single: one pass. conformal: shifted by held-out rows. dropout: many passes. ensemble: five networks.
Reading = Literal["single", "conformal", "dropout", "ensemble"]
Family = Literal["parametric", "qr", "cr", "ensemble"]
Setting = Mapping[str, Any]

ENSEMBLE_SIZE = 5
RATES, DECAYS = (4e-3, 2e-3), (1e-4, 5e-4)
_MODEL_FIELDS = {field.name for field in fields(ModelConfig)}


@dataclass(frozen=True)
class Method:
    """`options` are those of ModelConfig. `knob`: what is its own to tune, with the values that it tries besides its
    default. `as_tuned`: the method whose networks and setting it takes over."""

    name: str
    label: str
    family: Family
    options: Setting
    knob: tuple[str, tuple[float, float]] | None = None
    reading: Reading = "single"
    as_tuned: str = ""

    def grid(self) -> list[Setting]:
        """The settings that tuning tries first, the same for all."""
        return [{"learning_rate": rate, "embedding_decay": decay} for rate in RATES for decay in DECAYS]

    def refined(self, best: Setting) -> list[Setting]:
        """What it tries then: the best of the grid with the other values of its own knob."""
        if self.knob is None:
            return []
        name, values = self.knob
        return [{**best, name: value} for value in values]

    def configured(self, setting: Setting, train: TrainConfig) -> tuple[ModelConfig, TrainConfig]:
        """The model and the training run of one setting."""
        model = {name: value for name, value in setting.items() if name in _MODEL_FIELDS}
        rest = {name: value for name, value in setting.items() if name not in _MODEL_FIELDS}
        return ModelConfig(**{"binning": "uniform", **self.options, **model}), replace(train, **rest)


# MC dropout reads the vanilla networks, so these are trained with some dropout.
_VANILLA = {"method": "deterministic", "dropout": 0.1}
_QR, _CR = {"head": "qr", **_VANILLA}, {"head": "cr", **_VANILLA}
_RATE = ("learning_rate", (1e-3, 5e-4))
_DROPOUT = ("dropout", (0.05, 0.2))
_BETA = ("beta", (0.02, 1.0))
_LENGTH = ("length_scale", (1.0, 4.0))

METHODS = (
    Method("gaussian", "Gaussian", "parametric", {"baseline": "gaussian"}, _RATE),
    Method("sngp", "SNGP", "parametric", {"baseline": "sngp"}, _LENGTH),
    Method("vbll", "VBLL", "parametric", {"baseline": "vbll"}, _BETA),
    Method("der", "DER", "parametric", {"baseline": "evidential"}, ("evidence_weight", (0.001, 0.1))),
    Method("mdn", "MDN", "parametric", {"baseline": "mdn"}, _RATE),
    Method("qr", "Vanilla QR", "qr", _QR, _DROPOUT),
    Method("cqr", "CQR", "qr", _QR, reading="conformal", as_tuned="qr"),
    Method("qr-mcd", "QR-MCD", "qr", _QR, reading="dropout", as_tuned="qr"),
    Method("qr-vbll", "QR-VBLL", "qr", {"head": "qr", "method": "vbll"}, _BETA),
    Method("cr", "Vanilla CR", "cr", _CR, _DROPOUT),
    Method("cr-sngp", "CR-SNGP", "cr", {"head": "cr", "baseline": "cr-sngp"}, _LENGTH),
    Method("cr-mcd", "CR-MCD", "cr", _CR, reading="dropout", as_tuned="cr"),
    Method("cr-vbll", "CR-VBLL", "cr", {"head": "cr", "method": "vbll"}, _BETA),
    Method("ensemble", "Ensemble", "ensemble", {"baseline": "gaussian"}, reading="ensemble", as_tuned="gaussian"),
    Method("qr-ensemble", "QR-Ensemble", "ensemble", _QR, reading="ensemble", as_tuned="qr"),
    Method("cr-ensemble", "CR-Ensemble", "ensemble", _CR, reading="ensemble", as_tuned="cr"),
)
BY_NAME = {method.name: method for method in METHODS}


def chosen(names: str) -> list[Method]:
    """The methods that a comma-separated list names, in the table's order; "all" is all."""
    if names == "all":
        return list(METHODS)
    wanted = {name.strip() for name in names.split(",")}
    unknown = sorted(wanted - set(BY_NAME))
    if unknown:
        raise ConfigError(f"no method {', '.join(unknown)}; expected all, or some of {', '.join(BY_NAME)}")
    return [method for method in METHODS if method.name in wanted]
