"""Ablations: one design choice varies, all other options have their defaults."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ghostless.contract.errors import ConfigError
from ghostless.heads.config import HeadName
from learning.config import MethodName, ModelConfig, TrainConfig
from research.comparison.cache import Judgement, Training
from research.comparison.results import MethodResult
from research.comparison.runner import Runner

HEADS: tuple[HeadName, ...] = ("qr", "cr")
RESOLUTIONS = (20, 40, 60, 80, 100)
LEVELS_A_GROUP = 4
PAPERS_RATE = 1e-3
# Epochs of a run whose NLL is shown by epoch.
CURVE_EPOCHS = 5
NAMES: dict[MethodName, str] = {"vbll": "VBLL", "deterministic": "vanilla"}


@dataclass(frozen=True)
class Ablation:
    """`train` has the run's options apart from seed and epochs."""

    label: str
    model: ModelConfig
    train: dict[str, Any]
    curve: bool = False


@dataclass(frozen=True)
class AblationResult(MethodResult):
    """Rows of the ablation, with the NLL by epoch of the first seed if the ablation has curves."""

    curve: tuple[dict[str, float], ...] = ()


def _model(**options: Any) -> ModelConfig:
    """The model with the paper's uniform bins."""
    return ModelConfig(binning="uniform", **options)


def backbone() -> list[Ablation]:
    """cross: the default. sn+cross: with spectral norm. sn: the paper's, without raw features in phi; sn+raw: with
    them. spectral-residual: residual blocks."""
    variants = []
    for head in HEADS:
        plain = _model(head=head)
        choices = {
            "cross": plain,
            "sn+cross": replace(plain, backbone="sn+cross"),
            "sn": replace(plain, backbone="sn"),
            "sn+raw": replace(plain, backbone="sn+raw"),
            "spectral-residual": replace(plain, backbone="spectral-residual"),
        }
        variants += [Ablation(f"{head.upper()}-VBLL, {name}", model, {}) for name, model in choices.items()]
    return variants


def resolution() -> list[Ablation]:
    """Number of CR's bins; number of QR's levels, always four per group."""
    quantiles = [_model(levels=count, groups=count // LEVELS_A_GROUP) for count in RESOLUTIONS]
    histograms = [_model(head="cr", bins=count) for count in RESOLUTIONS]
    return [
        *(Ablation(f"QR-VBLL, {model.levels} levels", model, {}) for model in quantiles),
        *(Ablation(f"CR-VBLL, {model.bins} bins", model, {}) for model in histograms),
    ]


def covariance() -> list[Ablation]:
    """From one variance per feature to a dense matrix per output."""
    variants = []
    for head in HEADS:
        plain = _model(head=head)
        choices = {
            "diagonal": replace(plain, covariance="diagonal"),
            **{f"low rank, {rank}": replace(plain, rank=rank) for rank in (2, 8, 32)},
            "dense": replace(plain, covariance="dense"),
            "dense per output": replace(plain, covariance="per-output"),
        }
        variants += [Ablation(f"{head.upper()}-VBLL, {name}", model, {}) for name, model in choices.items()]
    return variants


def regularisation() -> list[Ablation]:
    """What prevents a head from memorising ids: its posterior, or the penalty and the dropout of embeddings.

    Bare networks use the paper's learning rate. The default backbone has no spectral norm, so vanilla heads are also
    shown with it.
    """
    variants = []
    bare_run = {"embedding_decay": 0.0, "learning_rate": PAPERS_RATE}
    for head in HEADS:
        for method, name in NAMES.items():
            model = _model(head=head, method=method)
            bare = replace(model, id_dropout=0.0)
            choices: dict[str, tuple[ModelConfig, dict[str, Any]]] = {
                "regularised": (model, {}),
                "bare": (bare, bare_run),
            }
            if method == "vbll":
                # The full weight of the KL term, ten times the default.
                choices["bare, beta 1"] = bare, {**bare_run, "beta": 1.0}
            else:
                choices["bare, spectral norm"] = replace(bare, backbone="sn+cross"), bare_run
            variants += [
                Ablation(f"{head.upper()} {name}, {choice}", *options, curve=True)
                for choice, options in choices.items()
            ]
    return variants


ABLATIONS: dict[str, Callable[[], list[Ablation]]] = {
    "backbone": backbone,
    "resolution": resolution,
    "covariance": covariance,
    "regularisation": regularisation,
}


def variants_of(name: str) -> list[Ablation]:
    if name not in ABLATIONS:
        raise ConfigError(f"no ablation '{name}'; expected one of {', '.join(ABLATIONS)}")
    return ABLATIONS[name]()


def ablate(runner: Runner, variants: Sequence[Ablation], seeds: int, epochs: int | None) -> list[AblationResult]:
    """`epochs`: None means the budget of `ghostless train`, or CURVE_EPOCHS if NLL is shown by epoch."""
    trainings = {variant.label: [_training(variant, seed, epochs) for seed in range(seeds)] for variant in variants}
    judgements = {label: [Judgement("single", (training,)) for training in group] for label, group in trainings.items()}
    runner.train((training for group in trainings.values() for training in group), "training")
    runner.judge((judgement for group in judgements.values() for judgement in group), "judging")
    results = []
    for label, group in judgements.items():
        runs = tuple(run for run in map(runner.figures, group) if run is not None)
        first = trainings[label][0]
        curve = tuple(runner.cache.cost(first).get("curve", ())) if runner.cache.trained(first) else ()
        results.append(AblationResult(label, runs, curve))
    return results


def _training(variant: Ablation, seed: int, epochs: int | None) -> Training:
    passes = epochs or (CURVE_EPOCHS if variant.curve else None)
    train = TrainConfig(epochs=passes, seed=seed, test=0.0, calibration=0.0, **variant.train)
    return Training(variant.model, train, variant.curve)
