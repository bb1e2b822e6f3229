"""Figures on data with a known distribution: four kinds of target, and the synthetic world of the demo."""

import re
from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from benchmarks.truth.judge import crps
from benchmarks.truth.parts import split_off
from benchmarks.truth.product import Product
from benchmarks.truth.targets import known_targets
from ghostless.heads.config import HeadName
from learning.data.synthetic import DEMO_ROWS, SyntheticVideos
from loadtest.figures import Figures

# Half the width of the central 90% interval of a standard normal distribution.
Z_90 = 1.645
_ABOUT_THE_RANGE = re.compile(r"\b(range|bins?|resolve|clip\w*)\b", re.IGNORECASE)


def measure_targets(product: Product, figures: Figures, heads: Sequence[HeadName]) -> None:
    """Coverage compared with the truth, and whether a warning is given if the declared range is far too wide."""
    for target in known_targets():
        parts = target.parts()
        perfect = float(crps(target.truth(parts.judged)).mean())
        product.console.print(f"  {target.name}: CRPS of the true distribution {perfect:.5g}", highlight=False)
        for head in heads:
            run = product.run(parts, head)
            error = run.judgement.coverage_error()
            figures.add(f"{target.name}, {head.upper()}: coverage, points off, worst of 50/80/90%", error, "<= 1.5")
            for warning in run.warnings:
                product.console.print(f"  warned: {warning}", highlight=False)
            if target.must_warn:
                due = sum(bool(_ABOUT_THE_RANGE.search(warning)) for warning in run.warnings)
                figures.add(f"{target.name}, {head.upper()}: warnings about range or bins", due, ">= 1")


def measure_world(product: Product, figures: Figures) -> None:
    """The model that `make serve` trains, compared with the true means."""
    world = SyntheticVideos(seed=0)
    parts = split_off("Synthetic world", world.sample(DEMO_ROWS, seed=0), seed=0)
    run = product.run(parts, "cr")
    truth, served = world.mean(parts.judged), run.served
    squared = (served.mean - truth) ** 2
    inside = np.abs(served.mean - truth) <= Z_90 * np.sqrt(served.epistemic)
    name = "Synthetic world CR:"
    figures.add(f"{name} correlation with the true mean", float(np.corrcoef(served.mean, truth)[0, 1]), ">= 0.75")
    figures.add(f"{name} CRPS", run.judgement.crps, "<= 0.312")
    figures.add(f"{name} training, seconds", run.seconds, "< 30")
    ratio = float(served.epistemic.mean() / squared.mean())
    figures.add(f"{name} epistemic / squared error of the mean", ratio, ">= 0.5")
    figures.add(f"{name} epistemic / squared error of the mean", ratio, "<= 1.5")
    figures.add(f"{name} true mean within 1.645 epistemic sd, share of rows", float(inside.mean()), ">= 0.8")
    rank = float(spearmanr(served.epistemic, squared).statistic)
    figures.add(f"{name} Spearman of epistemic and squared error", rank, ">= 0.4")
