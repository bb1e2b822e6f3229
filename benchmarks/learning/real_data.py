"""Quality on KuaiRand and Uber, epistemic variance of cold-start users, training time, the spectral bound."""

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

NOT_GIVEN = "no real data is given; --data or GHOSTLESS_DATA names its folder (docs/data.md)"
HEADS: tuple[HeadName, ...] = ("cr", "qr")
KUAIRAND_NLL = {"cr": "<= 0.995", "qr": "<= 1.09"}


def kuairand(folder: Path) -> str:
    return f"kuairand:{_existing(folder / 'kuairand_pure')}"


def uber(folder: Path) -> str:
    place = _existing(folder / "ncr_uber")
    files = sorted([*place.glob("ncr_ride_bookings.csv"), *place.glob("*.parquet")])
    if not files:
        raise ConfigError(f"{place}: neither ncr_ride_bookings.csv nor a Parquet file in it")
    return f"uber:{files[0]}"


def kuairec(folder: Path) -> str:
    return f"kuairec:{_existing(folder / 'kuairec_sample')}"


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is not there; give --data (or GHOSTLESS_DATA) the folder that holds kuairand_pure and ncr_uber"
        )
    return folder


def measure_kuairand(runs: Runs, figures: Figures, data: str, seeds: int, pictures: Path | None) -> None:
    """NLL of the default network beside its vanilla twin's, epistemic variance by history; the time that the paper's
    network takes. Means over `seeds` random splits.

    How large the epistemic part should be is a question for held-out pairs of rows (`bench truth`), not for a ratio.
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
        figures.add(f"{name} NLL / vanilla twin's", nll / twin_nll, "<= 1.002", samples=shares, spread=spread)
        history[head] = _measure_history(figures, vbll, name)
        seconds = [runs.paper(data, head, seed).seconds for seed in range(seeds)]
        label = f"{name}, the paper's network, training, 5 epochs, median seconds"
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
    figures.add(f"{name} epistemic, unknown users / 20 or more interactions", ratio, ">= 3")
    figures.add(f"{name} epistemic, rises over history buckets", float(np.sum(np.diff(means) >= 0)), "== 0")
    return means


def measure_uber(runs: Runs, figures: Figures, data: str) -> None:
    """Features that say next to nothing: the test is not to overfit."""
    for head in HEADS:
        metrics = runs.default(data, head).metrics
        figures.add(f"Uber {head.upper()}-VBLL NLL", metrics.nll, "<= 1.785")
        figures.add(f"Uber {head.upper()}-VBLL CRPS", metrics.crps, "<= 0.2562")


def measure_demo(runs: Runs, figures: Figures) -> None:
    """What `make serve` trains."""
    for head in HEADS:
        run = runs.default("synthetic", head)
        figures.add(f"synthetic demo {head.upper()} training, seconds", run.seconds, "< 30")


def measure_spectral_bound(runs: Runs, figures: Figures) -> None:
    """The largest singular value of every layer as it is served, in all models that were trained."""
    excess = [
        torch.linalg.matrix_norm(layer.folded().double(), ord=2).item() / layer.bound
        for run in runs.all()
        for layer in run.checkpoint.model.backbone.layers
        if isinstance(layer, SpectralLinear)
    ]
    figures.add(f"largest singular value / its bound, {len(excess)} layers", max(excess, default=np.nan), "<= 1.00001")
