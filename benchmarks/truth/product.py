"""The only module of this bench that uses the product's interfaces: it trains and predicts with defaults.

It uses `Trainer(dataset, data, model, train, out).run(report)` and the exported graph (`served_graph`), whose outputs
are evaluated. All scores are computed by the bench itself (`judge`).
"""

import hashlib
import logging
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import export
import ghostless.heads
import learning
from benchmarks.truth.judge import Forecast, Judgement, judge
from benchmarks.truth.parts import Parts
from benchmarks.truth.served_graph import ServedGraph
from benchmarks.truth.store import Saved, Store
from benchmarks.truth.variances import Served
from ghostless.heads.config import HeadName
from learning.checkpoint import Checkpoint
from learning.config import MethodName, ModelConfig, TrainConfig
from learning.data.table import Table
from learning.target_notes import target_notes
from learning.training import Progress as Step
from learning.training import Trainer


@dataclass(frozen=True)
class Run:
    """A trained model on the judged rows: its figures, what it serves for them, also with each id sent as unknown, and
    what its training said."""

    judgement: Judgement
    served: Served
    masked: tuple[Served, ...]
    seconds: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Product:
    """Trains runs that the store does not have. Only head, method and seed differ from `ghostless train`'s defaults."""

    store: Store
    console: Console
    _runs: dict[Path, Run] = field(default_factory=dict)

    def run(self, parts: Parts, head: HeadName, method: MethodName = "vbll", seed: int = 0) -> Run:
        model = ModelConfig(head=head, method=method)
        # The judged rows are not in `parts.fitting`, so the run holds out no test part of its own.
        train = TrainConfig(seed=seed, test=0.0)
        label = f"{parts.name} {head}-{method}"
        folder = self.store.folder(label, parts.fingerprint, model, train)
        if folder not in self._runs:
            saved = self.store.load(folder)
            if saved is None:
                saved = self._train(label, parts, model, train, folder)
                self.store.save(folder, saved)
            elif saved.facts["code"] != product_code():
                self.console.print(f"  {folder}: trained by other code; delete it to train again", style="yellow")
            self._runs[folder] = self._judged(label, saved, parts)
        return self._runs[folder]

    def _train(self, label: str, parts: Parts, model: ModelConfig, train: TrainConfig, folder: Path) -> Saved:
        # A cut-off training starts again: its seconds must be those of one whole run.
        shutil.rmtree(folder, ignore_errors=True)
        self.console.print(f"  training {label}, {parts.fitting.rows:,} rows", highlight=False)
        started = time.perf_counter()
        with _listening() as heard, self._progress(label) as show:
            checkpoint = Trainer(parts.fitting, parts.name, model, train, folder).run(show)
        seconds = time.perf_counter() - started
        heard += target_notes(checkpoint, parts.fitting.clipped)[1:]
        arrays = predict(checkpoint, parts.judged)
        facts: dict[str, Any] = {"label": label, "seconds": seconds, "warnings": heard, "code": product_code()}
        return Saved(arrays, {**facts, "model": asdict(model), "train": asdict(train)})

    def _judged(self, label: str, saved: Saved, parts: Parts) -> Run:
        arrays, target = saved.arrays, parts.judged.schema.target
        forecast = Forecast(arrays["knots"], arrays["cdf"], arrays["mean"], parts.judged.target.astype(np.float64))
        found = judge(forecast, target.low, target.high)
        shares = "/".join(f"{100 * share:.1f}" for share in found.coverage.values())
        self.console.print(
            f"  {label}: NLL {found.nll:.4f}, CRPS {found.crps:.5g} (19 levels {found.crps_levels:.5g}), "
            f"RMSE {found.rmse:.5g}, ECE {found.ece:.4f}, coverage {shares}%, KS {found.ks:.4f}, "
            f"{saved.facts['seconds']:.0f} s",
            highlight=False,
        )
        masked = tuple(Served.of(arrays, f"{name}/") for name in parts.judged.schema.id_names)
        seconds, warned = float(saved.facts["seconds"]), tuple(saved.facts["warnings"])
        return Run(found, Served.of(arrays), masked, seconds, warned)

    @contextmanager
    def _progress(self, label: str) -> Iterator[Any]:
        columns = (TextColumn("  {task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            task = bar.add_task(label, total=None)

            def show(step: Step) -> None:
                bar.update(task, total=step.steps, completed=step.step)

            yield show


def predict(checkpoint: Checkpoint, rows: Table) -> dict[str, NDArray[Any]]:
    """The calibrated outputs of the exported graph for every row: knots [k], with an atom's value twice; cdf [n, k];
    mean and variances [n], and the same as ID/mean and so on with that id unknown."""
    graph = ServedGraph(checkpoint)
    found: dict[str, NDArray[Any]] = {"knots": graph.knots, "cdf": graph.cdf(rows), **graph.moments(rows)}
    for feature in rows.schema.features:
        if feature.is_coded:
            unknown = np.full(rows.rows, -1 if feature.type == "int64" else "\x00 unknown")
            masked = Table(rows.schema, {**rows.columns, feature.name: unknown}, rows.target)
            found |= {f"{feature.name}/{name}": values for name, values in graph.moments(masked).items()}
    return found


def product_code() -> str:
    """Digest of the sources that train, export and predict, so that stored runs of other code are detected."""
    digest = hashlib.sha256()
    for package in (export, learning, ghostless.heads):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collects what the product warns about, by `warnings` or by a logger."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    ear, root = Ear(logging.WARNING), logging.getLogger()
    root.addHandler(ear)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield heard
        heard.extend(str(warning.message) for warning in caught)
    finally:
        root.removeHandler(ear)
