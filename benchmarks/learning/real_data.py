"""Accuracy on KuaiRand and Uber, epistemic variance of cold-start users, training time, and the spectral bound."""

from pathlib import Path
from statistics import fmean, median

import numpy as np
import torch
from rich.table import Table

from benchmarks.learning.runs import Runs, TrainedRun
from ghostless.contract.errors import ConfigError
from ghostless.heads.config import HeadName
from learning import plots
from learning.backbone import SpectralLinear
from loadtest.figures import Figures, standard_error_of_mean

NOT_GIVEN = "there are no real data; give their folder with --data or GHOSTLESS_DATA (docs/data.md)"
HEADS: tuple[HeadName, ...] = ("cr", "qr")
KUAIRAND_NLL = {"cr": "<= 0.995", "qr": "<= 1.09"}


def kuairand(folder: Path) -> str:
    return f"kuairand:{_existing(folder / 'kuairand_pure')}"


def uber(folder: Path) -> str:
    place = _existing(folder / "ncr_uber")
    files = sorted([*place.glob("ncr_ride_bookings.csv"), *place.glob("*.parquet")])
    if not files:
        raise ConfigError(f"{place} has neither ncr_ride_bookings.csv nor a Parquet file")
    return f"uber:{files[0]}"


def kuairec(folder: Path) -> str:
    return f"kuairec:{_existing(folder / 'kuairec_sample')}"


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} does not exist; set --data or GHOSTLESS_DATA to the folder with kuairand_pure and ncr_uber"
        )
    return folder


def measure_kuairand(runs: Runs, figures: Figures, data: str, seeds: int, pictures: Path | None) -> None:
    """Compare the NLL of the default network with its vanilla twin, and the epistemic variance by history; measure the
    training time of the paper's network. Figures are means over `seeds` random splits.

    Only held-out pairs of rows can show how large the epistemic part should be (`bench truth`); the ratio here cannot.
    """
    history = {}
    for head in HEADS:
        vbll = [runs.default(data, head, "vbll", seed) for seed in range(seeds)]
        twin = [runs.default(data, head, "deterministic", seed) for seed in range(seeds)]
        nll, twin_nll = (fmean(run.metrics.nll for run in group) for group in (vbll, twin))
        name = f"KuaiRand {head.upper()}-VBLL"
        nlls = [run.metrics.nll for run in vbll]
        spread = standard_error_of_mean(nlls)
        figures.add(f"{name} NLL, mean of {seeds} seeds", nll, KUAIRAND_NLL[head], samples=nlls, spread=spread)
        figures.console.print(f"  {name}: the vanilla twin's NLL is {twin_nll:.4f}", highlight=False)
        shares = [one.metrics.nll / other.metrics.nll for one, other in zip(vbll, twin, strict=True)]
        spread = standard_error_of_mean(shares)
        figures.add(f"{name} NLL / NLL of the vanilla twin", nll / twin_nll, "<= 1.002", samples=shares, spread=spread)
        history[head] = _measure_history(figures, vbll, name)
        seconds = [runs.paper(data, head, seed).seconds for seed in range(seeds)]
        label = f"{name}, training time of the paper's network, 5 epochs, median s"
        figures.add(label, median(seconds), "< 60", samples=seconds)
    if pictures is not None:
        first = runs.default(data, HEADS[0]).evaluation.epistemic_by_history()
        plots.epistemic_by_history(
            [bucket["history"] for bucket in first],
            {head.upper(): values for head, values in history.items()},
            [bucket["rows"] for bucket in first],
            pictures / "epistemic_by_history.png",
            "KuaiRand: epistemic variance by user history",
        )


def _measure_history(figures: Figures, runs: list[TrainedRun], name: str) -> list[float]:
    """Mean epistemic variance by bucket of history, over the runs."""
    buckets = [run.evaluation.epistemic_by_history() for run in runs]
    means = [fmean(bucket["epistemic"] for bucket in same) for same in zip(*buckets, strict=True)]
    table = Table("user history", "rows", "epistemic variance", title=f"{name}, mean of {len(runs)} seeds")
    for bucket, mean in zip(buckets[0], means, strict=True):
        table.add_row(bucket["history"], f"{bucket['rows']:,}", f"{mean:.6f}")
    figures.console.print(table)
    ratio = fmean(run.evaluation.cold_start_ratio() for run in runs)
    figures.add(f"{name} epistemic variance, unknown users / users with 20 or more interactions", ratio, ">= 3")
    figures.add(
        f"{name} epistemic variance, increases from one history bucket to the next",
        float(np.sum(np.diff(means) >= 0)),
        "== 0",
    )
    return means


def measure_uber(runs: Runs, figures: Figures, data: str) -> None:
    """The features of Uber carry almost no information, so this tests for overfitting."""
    for head in HEADS:
        metrics = runs.default(data, head).metrics
        figures.add(f"Uber {head.upper()}-VBLL NLL", metrics.nll, "<= 1.785")
        figures.add(f"Uber {head.upper()}-VBLL CRPS", metrics.crps, "<= 0.2562")


def measure_demo(runs: Runs, figures: Figures) -> None:
    """Measure the training time of the demo of `make serve`."""
    for head in HEADS:
        run = runs.default("synthetic", head)
        figures.add(f"training time of the synthetic demo, {head.upper()}, s", run.seconds, "< 30")


def measure_spectral_bound(runs: Runs, figures: Figures) -> None:
    """Check the largest singular value of every served layer, in all trained models."""
    excess = [
        torch.linalg.matrix_norm(layer.folded().double(), ord=2).item() / layer.bound
        for run in runs.all()
        for layer in run.checkpoint.model.backbone.layers
        if isinstance(layer, SpectralLinear)
    ]
    figures.add(f"largest singular value / its bound, {len(excess)} layers", max(excess, default=np.nan), "<= 1.00001")
