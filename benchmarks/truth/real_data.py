"""KuaiRand, KuaiRec and Uber: quality, calibration overall and by group, relative to LightGBM and deterministic
twins."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.learning.real_data import kuairand, kuairec, uber
from benchmarks.truth.judge import CENTRAL, coverage
from benchmarks.truth.parts import Parts, split_off
from benchmarks.truth.product import Product, Run
from benchmarks.truth.rivals import RivalJudgement, measure_rival
from benchmarks.truth.variances import disagreeing, falls_with_history, judge_members, judge_pairs
from ghostless.contract.pair_test import ALL, MASKED, PairTest
from ghostless.heads.config import HeadName
from learning.config import MethodName
from learning.data.load import load
from learning.data.table import Table
from learning.errors import DataError
from learning.pair_report import pair_tables
from loadtest.figures import Figures

# The head that bounds apply to if they don't name one.
HEAD: HeadName = "cr"
# Buckets of history (number of fitting rows with the id): lower and upper end of each.
HISTORY = ((0, 0), (1, 2), (3, 5), (6, 9), (10, 19), (20, 49), (50, None))
LEAST_BUCKET_ROWS = 2_000
MEMBERS = 5
KUAIRAND_BOUNDS = {"cr": ("<= 0.968", "<= 0.1840", "<= 0.013"), "qr": ("<= 1.00", "<= 0.187", "<= 0.015")}


@dataclass(frozen=True)
class RealData:
    """The three sources, each with the splits to evaluate; the first split of each is always included."""

    kuairand: tuple[Parts, ...]
    kuairec: tuple[Parts, ...]
    uber: tuple[Parts, ...]

    @classmethod
    def load(cls, folder: Path, splits: Sequence[int]) -> "RealData":
        """KuaiRand in all `splits`, the others in the first; all rows that the loaders return."""
        return cls(
            _splits("KuaiRand", kuairand(folder), splits),
            _splits("KuaiRec", kuairec(folder), splits[:1]),
            _splits("Uber", uber(folder), splits[:1]),
        )

    def sources(self) -> Iterator[tuple[str, tuple[Parts, ...]]]:
        yield from (("KuaiRand", self.kuairand), ("KuaiRec", self.kuairec), ("Uber", self.uber))


def _splits(name: str, source: str, seeds: Sequence[int]) -> tuple[Parts, ...]:
    table = load(source)
    if not isinstance(table, Table):
        raise DataError(f"{source}: expected a table in memory")
    return tuple(split_off(f"{name} split {seed}", table, seed) for seed in seeds)


def measure_kuairand(product: Product, figures: Figures, data: RealData) -> None:
    """Figures of both heads: means over the splits, except for those that must hold in each."""
    for head in ("cr", "qr"):
        runs = _runs(product, data.kuairand, head)
        name = f"KuaiRand {head.upper()}"
        nll, crps, ece = KUAIRAND_BOUNDS[head]
        figures.add(f"{name} NLL", _mean(runs, lambda run: run.judgement.nll), nll)
        figures.add(f"{name} CRPS", _mean(runs, lambda run: run.judgement.crps), crps)
        figures.add(f"{name} ECE", _mean(runs, lambda run: run.judgement.ece), ece)
        if head == "cr":
            _measure_calibration(figures, runs, data.kuairand, name)
            measure_split(product.console, figures, runs, data.kuairand, name)


def _measure_calibration(figures: Figures, runs: list[Run], splits: Sequence[Parts], name: str) -> None:
    for level in CENTRAL:
        error = max(100 * abs(run.judgement.coverage[level] - level) for run in runs)
        figures.add(f"{name} coverage of {level:.0%}, points off, worst split", error, "<= 1.5")
    figures.add(f"{name} Kolmogorov-Smirnov of PIT, worst split", max(run.judgement.ks for run in runs), "<= 0.020")
    figures.add(f"{name} Kolmogorov-Smirnov of PIT, mean", _mean(runs, lambda run: run.judgement.ks), "<= 0.014")
    by_mean = [error for run in runs for error in coverage_errors(run.judgement.pit, deciles(run.served.mean))]
    figures.add(f"{name} coverage of 90%, points off, worst decile of the mean and split", max(by_mean), "<= 4")
    feature = splits[0].fitting.schema.id_names[0]
    by_history = [
        error
        for run, parts in zip(runs, splits, strict=True)
        for error in coverage_errors(run.judgement.pit, history_buckets(parts.history(feature)))
    ]
    figures.add(f"{name} coverage of 90%, points off, worst history of {feature} and split", max(by_history), "<= 4")


def measure_split(console: Console, figures: Figures, runs: Sequence[Run], splits: Sequence[Parts], name: str) -> None:
    """The pair test of every split, with the served outputs."""
    for run, parts in zip(runs, splits, strict=True):
        found = judge_pairs(parts, run.served, run.masked)
        for table in pair_tables(PairTest(parts.judged.rows, tuple(found))):
            console.print(table)
        label = f"{name} {parts.name.partition(' ')[2]}"
        figures.add(f"{label}: histories whose served variance disagrees with pairs", disagreeing(found), "== 0")
        for feature in parts.judged.schema.id_names:
            pooled, masked = (
                next(figure.ratio for figure in found if (figure.feature, figure.history) == (feature, history))
                for history in (ALL, MASKED)
            )
            figures.add(f"{label}: {feature}, served / measured, all histories", pooled, ">= 0.75")
            figures.add(f"{label}: {feature}, served / measured, all histories", pooled, "<= 1.33")
            figures.add(f"{label}: {feature} unknown, served / measured", masked, ">= 0.6")
            figures.add(f"{label}: {feature} unknown, served / measured", masked, "<= 1.67")
            falls = falls_with_history(found, feature)
            figures.add(f"{label}: {feature}, served falls with history, unknown largest", falls, "== 1")


def measure_ensemble(product: Product, parts: Parts) -> None:
    """The variance of an ensemble for the same pairs, without a bound: deterministic networks with different seeds."""
    runs = [product.run(parts, HEAD, "deterministic", seed) for seed in range(MEMBERS)]
    found = judge_members(parts, [run.served for run in runs])
    product.console.print(f"  {parts.name}: ensemble of {MEMBERS}, all of its epistemic variance taken as shared")
    for table in pair_tables(PairTest(parts.judged.rows, tuple(found))):
        product.console.print(table)


def measure_kuairec(product: Product, figures: Figures, data: RealData) -> None:
    judged = product.run(data.kuairec[0], HEAD).judgement
    figures.add(f"KuaiRec {HEAD.upper()} NLL", judged.nll, "<= 1.455")
    figures.add(f"KuaiRec {HEAD.upper()} CRPS", judged.crps, "<= 0.2175")
    figures.add(f"KuaiRec {HEAD.upper()} coverage, points off, worst of 50/80/90%", judged.coverage_error(), "<= 2")


def measure_uber(product: Product, figures: Figures, data: RealData) -> None:
    judged = product.run(data.uber[0], HEAD).judgement
    figures.add(f"Uber {HEAD.upper()} CRPS", judged.crps, "<= 0.2565")
    figures.add(f"Uber {HEAD.upper()} coverage, points off, worst of 50/80/90%", judged.coverage_error(), "<= 1.5")


def fit_rivals(product: Product, data: RealData) -> dict[str, list[RivalJudgement]]:
    """LightGBM on every split, by source."""
    return {
        name: [measure_rival(product.store, parts, product.console) for parts in splits]
        for name, splits in data.sources()
    }


def measure_rivals(product: Product, figures: Figures, data: RealData, rivals: dict[str, list[RivalJudgement]]) -> None:
    """Ratios to LightGBM, with both scored by the same formula on the same rows."""
    ahead = 0
    for name, splits in data.sources():
        runs = _runs(product, splits, HEAD)
        ahead += add_ratios(figures, name, runs, rivals[name]) < 1.0
    figures.add("sources with CRPS ahead of LightGBM's, of 3", ahead, ">= 2")


def add_ratios(figures: Figures, name: str, runs: Sequence[Run], rivals: Sequence[RivalJudgement]) -> float:
    """CRPS and RMSE relative to LightGBM, as means over the same splits; returns the ratio of CRPS."""
    crps = _mean(runs, lambda run: run.judgement.crps_levels) / fmean(rival.crps_levels for rival in rivals)
    rmse = _mean(runs, lambda run: run.judgement.rmse) / fmean(rival.rmse for rival in rivals)
    figures.add(f"{name} {HEAD.upper()} CRPS over 19 levels / LightGBM's", crps, "<= 1.01")
    figures.add(f"{name} {HEAD.upper()} RMSE / LightGBM's", rmse, "<= 1.01")
    return crps


def measure_twin(product: Product, figures: Figures, data: RealData, heads: Sequence[HeadName]) -> None:
    """The variational last layer may cost almost no accuracy compared with the same network without it."""
    for head in heads:
        vbll, twin = (_crps(_runs(product, data.kuairand, head, method)) for method in ("vbll", "deterministic"))
        figures.add(f"KuaiRand {head.upper()}-VBLL CRPS / its deterministic twin's", vbll / twin, "<= 1.003")


def deciles(mean: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Ten groups of rows of equal size, by predicted mean [n]."""
    rank = np.argsort(np.argsort(mean, kind="stable"), kind="stable")
    group = rank * 10 // len(mean)
    return [group == number for number in range(10)]


def history_buckets(history: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """The buckets of history [n] that have enough rows."""
    buckets = [(history >= low) & (history <= (np.inf if high is None else high)) for low, high in HISTORY]
    return [bucket for bucket in buckets if bucket.sum() >= LEAST_BUCKET_ROWS]


def coverage_errors(pit: NDArray[np.float64], groups: Sequence[NDArray[np.bool_]]) -> list[float]:
    """|coverage of the central 90% interval - 90%| in each group, in percentage points."""
    return [100 * abs(coverage(pit[group], 0.9) - 0.9) for group in groups]


def _runs(product: Product, splits: Sequence[Parts], head: HeadName, method: MethodName = "vbll") -> list[Run]:
    """One run per split; the seed is the number of the split."""
    return [product.run(parts, head, method, seed) for seed, parts in enumerate(splits)]


def _crps(runs: Sequence[Run]) -> float:
    return _mean(runs, lambda run: run.judgement.crps)


def _mean(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    return fmean(value(run) for run in runs)
