"""Trained and evaluated models; each is trained once and shared between figures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ghostless.heads.config import HeadName
from learning.checkpoint import Checkpoint
from learning.config import MethodName, ModelConfig, TrainConfig
from learning.data.load import load
from learning.data.table import Dataset
from learning.evaluation import Evaluation, evaluate
from learning.metrics import Metrics
from learning.training import Progress, Trainer

# The paper's network: spectral norm with raw inputs in phi, and equal bins. The training recipe is that of commit
# fd7b8c1: five epochs without averaging, early stopping or calibration.
PAPER_MODEL = ModelConfig(backbone="sn+raw", binning="uniform", hidden=(256, 128, 64), dropout=0.1, effect_inputs=False)
PAPER_TRAIN = TrainConfig(
    epochs=5,
    batch_rows=2048,
    warmup_steps=0,
    embedding_rate=1.0,
    embedding_decay=1e-4,
    average=0.0,
    patience=0,
    calibration=0.0,
)


@dataclass(frozen=True)
class TrainedRun:
    """A trained model, its predictions for the test part, and its training time (without reading files)."""

    checkpoint: Checkpoint
    evaluation: Evaluation
    metrics: Metrics
    seconds: float


@dataclass(frozen=True)
class Runs:
    """Trains models on request, with a progress bar, and caches them."""

    console: Console
    _datasets: dict[str, Dataset] = field(default_factory=dict)
    _runs: dict[tuple[str, ModelConfig, TrainConfig], TrainedRun] = field(default_factory=dict)

    def get(self, data: str, model: ModelConfig, config: TrainConfig) -> TrainedRun:
        key = (data, model, config)
        if key not in self._runs:
            self._runs[key] = self._train(data, model, config)
        return self._runs[key]

    def default(self, data: str, head: HeadName, method: MethodName = "vbll", seed: int = 0) -> TrainedRun:
        """A model with the default hyper-parameters of `ghostless train`."""
        return self.get(data, ModelConfig(head=head, method=method), TrainConfig(seed=seed))

    def paper(self, data: str, head: HeadName, seed: int = 0) -> TrainedRun:
        """A model with the paper's network and training recipe."""
        return self.get(data, replace(PAPER_MODEL, head=head), replace(PAPER_TRAIN, seed=seed))

    def all(self) -> list[TrainedRun]:
        return list(self._runs.values())

    def _train(self, data: str, model: ModelConfig, config: TrainConfig) -> TrainedRun:
        if data not in self._datasets:
            self._datasets[data] = load(data)
        name = f"{data.partition(':')[0]} {model.head}-{model.method} seed {config.seed}"
        started = time.perf_counter()
        trainer = Trainer(self._datasets[data], data, model, config)
        with self._progress(name) as show:
            checkpoint = trainer.run(show)
        seconds = time.perf_counter() - started
        if trainer.test is None:
            raise ValueError(f"{name}: a run that is evaluated must hold out a test part")
        evaluation = evaluate(checkpoint, trainer.test)
        run = TrainedRun(checkpoint, evaluation, evaluation.metrics(), seconds)
        quality = f"NLL {run.metrics.nll:.4f}, CRPS {run.metrics.crps:.4f}, ECE {run.metrics.ece:.4f}"
        self.console.print(f"  {name}: {quality}, {seconds:.1f} s", highlight=False)
        return run

    @contextmanager
    def _progress(self, name: str) -> Iterator[Callable[[Progress], None]]:
        columns = (TextColumn("  training {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            task = bar.add_task(name, total=None)
            yield lambda step: bar.update(task, total=step.steps, completed=step.step)
