"""`ghostless bench heads`: is the choice of `--head auto` good, and do calibrated intervals have their nominal
coverage?

Uses real data, split at random. Coverage is measured on the exported graph, loaded as in the server, on rows that
neither training nor calibration used.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

import numpy as np
import typer

from benchmarks.graph import timing
from benchmarks.learning import real_data
from benchmarks.learning.runs import Runs, TrainedRun
from export import publish, rows
from export.graph import Networks
from export.options import ExportOptions
from ghostless.contract import metadata, repository
from ghostless.contract.errors import ConfigError
from ghostless.heads.config import HeadName
from learning import auto
from learning.config import ModelConfig, TrainConfig
from learning.data.load import load
from learning.data.table import Dataset
from learning.evaluation import evaluate
from learning.trained import TrainedModel
from learning.training import split
from loadtest.figures import Figures, standard_error_of_mean
from serving.engines.embedded import load_model

CALIBRATION = 0.1
ENDS = (0.05, 0.95)
_ROWS = 2048
_SOURCES = {"kuairand": real_data.kuairand, "kuairec": real_data.kuairec, "uber": real_data.uber}


def bench(
    data: Annotated[
        Path | None,
        typer.Option(envvar="GHOSTLESS_DATA", help="Folder with kuairand_pure, kuairec_sample and ncr_uber."),
    ] = None,
    only: Annotated[str, typer.Option(help="Run on one data set: kuairand, kuairec or uber. Default: all three.")] = "",
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use one seed instead of two, with the same bounds.")] = False,
) -> None:
    """Compare the QR, CR and auto heads on three data sets, and check the coverage of exported 90% intervals."""
    if only and only not in _SOURCES:
        raise ConfigError(f"--only is '{only}', expected one of {', '.join(_SOURCES)}")
    figures = Figures("ghostless bench heads")
    if data is None:
        figures.skip("all figures of bench heads", real_data.NOT_GIVEN)
    else:
        sources = {name: find(data) for name, find in _SOURCES.items()}
        for name in [only] if only else sources:
            figures.console.rule(name)
            _measure(figures, name, sources[name], seeds=1 if quick else 2)
    figures.finish(json_path)


def _measure(figures: Figures, name: str, source: str, seeds: int) -> None:
    dataset, ratios = load(source), []
    covered: dict[str, list[float]] = {"CR": [], "QR": [], "pool": []}
    for seed in range(seeds):
        runs = Runs(figures.console)
        config = TrainConfig(seed=seed, calibration=CALIBRATION)
        single = {head: runs.get(source, ModelConfig(head=head), config) for head in auto.HEADS}
        chosen, both = _auto(runs, source, dataset, single)
        test = split(dataset, config).test
        assert test is not None
        nll = evaluate(chosen.first, test, chosen.predict).metrics().nll
        best = min(run.metrics.nll for run in single.values())
        ratios.append(nll / best)
        figures.console.print(
            f"  seed {seed}: CR {single['cr'].metrics.nll:.4f}, QR {single['qr'].metrics.nll:.4f}; auto chose "
            f"{chosen.head}, {nll:.4f} (validation: {_validation(chosen)})",
            highlight=False,
        )
        networks = {head.upper(): Networks((run.checkpoint,)) for head, run in single.items()}
        with tempfile.TemporaryDirectory(prefix="ghostless-bench-") as directory:
            for kind, exported in {**networks, "pool": Networks.trained(both)}.items():
                covered[kind].append(_coverage(exported, kind.lower(), Path(directory), test))
            if not seed:
                _cost(figures, Path(directory), name, single["qr"])
    title = f"{name}: NLL of auto / NLL of the better head, mean of {seeds} seeds"
    figures.add(title, fmean(ratios), "<= 1.005", samples=ratios, spread=standard_error_of_mean(ratios))
    for kind, shares in covered.items():
        title = f"{name} {kind}: share of test rows inside the graph's calibrated 90% interval"
        for bound in (">= 0.89", "<= 0.91"):
            figures.add(title, fmean(shares), bound, samples=shares, spread=standard_error_of_mean(shares))


def _auto(
    runs: Runs, source: str, dataset: Dataset, single: dict[HeadName, TrainedRun]
) -> tuple[TrainedModel, TrainedModel]:
    """The model that `ghostless train --head auto` would choose, and the pool of both heads."""
    checkpoints = {head: run.checkpoint for head, run in single.items()}
    on_trial = replace(checkpoints["cr"].train_config, validation=auto.VALIDATION)
    cr, qr = (runs.get(source, ModelConfig(head=head), on_trial).checkpoint for head in auto.HEADS)
    choice = auto.choose(dataset, cr, qr)
    chosen, weight = auto.assemble(choice, checkpoints, dataset), choice.qr_weight
    return chosen, TrainedModel((checkpoints["cr"], checkpoints["qr"]), (1.0 - weight, weight), chosen.metrics)


def _validation(chosen: TrainedModel) -> str:
    figures = chosen.metrics
    nlls = ", ".join(f"{kind} {figures[f'validation_{kind.lower()}_nll']:.4f}" for kind in ("CR", "QR", "pool"))
    return f"{nlls} with weight {figures['validation_qr_weight']:.2f} on QR"


def _coverage(networks: Networks, name: str, root: Path, test: Dataset) -> float:
    """Share of the test rows inside the exported graph's closed 90% interval."""
    version, _ = publish.export_model(networks, name, root, ExportOptions())
    loaded = load_model(repository.find(root, name).model_file(version), name, version, (1,))
    places = [loaded.metadata.levels.index(level) for level in ENDS]
    inside = []
    for part in test.batches(_ROWS):
        ends = loaded.run(rows.fed(dict(part.columns)), (metadata.QUANTILES,))[metadata.QUANTILES][:, places]
        inside.append((ends[:, 0] <= part.target) & (part.target <= ends[:, 1]))
    return float(np.concatenate(inside).mean())


def _cost(figures: Figures, root: Path, name: str, run: TrainedRun) -> None:
    kinds = ("cr", "qr", "pool")
    loaded = timing.copies([repository.find(root, kind).model_file(1) for kind in kinds])
    feed = rows.fed(rows.plausible(run.checkpoint.encoding, 256, 0))
    times = timing.interleaved(loaded, feed, rounds=12)
    medians = ", ".join(f"{kind} {value:,.0f}" for kind, value in zip(kinds, timing.microseconds(times), strict=True))
    figures.console.print(f"  us for 256 rows, one thread: {medians}", highlight=False)
    ratios = timing.ratios(times, 2, 1)
    figures.add(f"{name}: time of the pool's graph / QR graph, 256 rows", median(ratios), "<= 2.5", samples=ratios)
