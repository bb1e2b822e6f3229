"""Rules for scoring and ranking candidates on the server; a higher score is better."""

from collections.abc import Callable
from dataclasses import dataclass

from ghostless.contract.errors import InvalidRequestError
from ghostless.v1 import prediction_pb2 as pb


@dataclass(frozen=True)
class Mean:
    """The expected target."""

    def message(self) -> pb.Scoring:
        return pb.Scoring(mean=pb.Scoring.Mean())


@dataclass(frozen=True)
class Quantile:
    """The quantile at `level`: a low level prefers safe candidates, a high one prefers upside."""

    level: float

    def message(self) -> pb.Scoring:
        return pb.Scoring(quantile=pb.Scoring.Quantile(level=self.level))


@dataclass(frozen=True)
class Ucb:
    """mean + kappa sqrt(epistemic_candidate): explores candidates that the model knows little about."""

    kappa: float = 1.0

    def message(self) -> pb.Scoring:
        return pb.Scoring(ucb=pb.Scoring.Ucb(kappa=self.kappa))


@dataclass(frozen=True)
class Thompson:
    """mean + scale sqrt(epistemic_candidate) e, with a standard normal e for each item and seed: the same item always
    gets the same e. `scale` None means the server's default of 0.25."""

    seed: int
    scale: float | None = None

    def message(self) -> pb.Scoring:
        return pb.Scoring(thompson=pb.Scoring.Thompson(seed=self.seed, scale=self.scale))


@dataclass(frozen=True)
class Acquisition:
    """The paper's hybrid, epistemic + gamma aleatoric: prefers rows whose labels would improve the model most."""

    gamma: float

    def message(self) -> pb.Scoring:
        return pb.Scoring(acquisition=pb.Scoring.Acquisition(gamma=self.gamma))


@dataclass(frozen=True)
class RiskAverse:
    """mean - weight sqrt(total variance)."""

    weight: float

    def message(self) -> pb.Scoring:
        return pb.Scoring(risk_averse=pb.Scoring.RiskAverse(weight=self.weight))


Scoring = Mean | Quantile | Ucb | Thompson | Acquisition | RiskAverse

_WRITTEN: dict[str, tuple[str, Callable[[str], Scoring]]] = {
    "quantile": ("LEVEL", lambda text: Quantile(float(text))),
    "ucb": ("KAPPA", lambda text: Ucb(float(text))),
    "thompson": ("SEED[:SCALE]", lambda text: _thompson(*text.split(":"))),
    "acquisition": ("GAMMA", lambda text: Acquisition(float(text))),
    "risk-averse": ("WEIGHT", lambda text: RiskAverse(float(text))),
}
SCORING_HELP = ", ".join(("mean", *(f"{name}:{argument}" for name, (argument, _) in _WRITTEN.items())))


def _thompson(seed: str, scale: str | None = None) -> Thompson:
    return Thompson(int(seed), None if scale is None else float(scale))


def parse_scoring(text: str) -> Scoring:
    """Parse a rule as written on a command line: "mean", "ucb:1.5", "thompson:42", "thompson:42:0.5"."""
    name, _, argument = text.partition(":")
    if text == "mean":
        return Mean()
    try:
        return _WRITTEN[name][1](argument)
    except (KeyError, ValueError, TypeError):
        raise InvalidRequestError(f"scoring rule {text!r} is not one of: {SCORING_HELP}") from None
