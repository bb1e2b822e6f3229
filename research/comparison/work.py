"""The work of one process: train one network, or evaluate one distribution, and store the result in the cache."""

import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ghostless.contract.errors import ConfigError
from learning.checkpoint import Checkpoint
from learning.data.table import Dataset
from learning.evaluation import evaluate
from learning.json_files import write_atomically
from learning.model import Model, Predict
from learning.training import Encoded, Progress, Trainer
from research.baselines.network import build_compared
from research.comparison.cache import Cache, Judgement, Training
from research.comparison.readings import reader
from research.comparison.source import Source, Splits

# Rows of a ranking request, and the number of requests over which the cost of inference is measured.
REQUEST_ROWS = 256
REQUESTS = 20
# Rows of each part that are evaluated for a curve.
CURVE_ROWS = 5_000


@dataclass(frozen=True)
class Work:
    source: Source
    root: Path
    what: Training | Judgement

    def __call__(self) -> None:
        parts = self.source.parts()
        cache = Cache(self.root, parts.fingerprint)
        if isinstance(self.what, Training):
            _train(self.what, self.source, parts, cache)
        else:
            _judge(self.what, parts, cache)


def _train(training: Training, source: Source, parts: Splits, cache: Cache) -> None:
    """A diverged run is a result too: its cost file says so, and its figures are infinitely bad."""
    out = cache.run(training)
    trainer = Trainer(parts.train, source.data, training.model, training.train, out, build_compared)
    if not training.curve:
        # The trainer would hold rows out by its seed. Here all runs hold out the same, so that an ensemble shares one
        # encoding.
        trainer.held_out = Encoded.of(parts.validation, trainer.encoding)
    curve = _Curve(out / "curve.json")
    steps, share, apart = 0, 1.0, 0.0

    def report(step: Progress) -> None:
        nonlocal steps, share, apart
        if step.validation_loss is not None:
            return
        steps += 1
        # If an earlier process did some of the steps, the total cost is extrapolated from those of this process.
        share = steps / step.step
        if step.batch == step.batches and training.curve:
            started = time.process_time()
            curve.add(step.epoch, _epoch_figures(trainer, training, parts))
            apart += time.process_time() - started

    started = time.process_time()
    try:
        trainer.run(report)
    except ConfigError as error:
        write_atomically(out / "cost.json", {"diverged": str(error)})
        return
    spent = time.process_time() - started - apart
    cost = {"cpu_seconds": spent / share, "train_rows": parts.train.rows}
    write_atomically(out / "cost.json", {**cost, **({"curve": curve.points()} if training.curve else {})})


@dataclass(frozen=True)
class _Curve:
    """Figures by epoch, stored in a file, so that a resumed run has those of earlier epochs."""

    file: Path

    def add(self, epoch: int, figures: dict[str, float]) -> None:
        before = [point for point in self.points() if point["epoch"] < epoch]
        write_atomically(self.file, {"points": [*before, {"epoch": epoch, **figures}]})

    def points(self) -> list[dict[str, float]]:
        return json.loads(self.file.read_text())["points"] if self.file.exists() else []


def _epoch_figures(trainer: Trainer, training: Training, parts: Splits) -> dict[str, float]:
    trainer.model.eval()
    now = Checkpoint(trainer.model, trainer.encoding, training.model, training.train, trainer.data, trainer.fingerprint)
    return {
        name: evaluate(now, _some(part)).metrics().nll
        for name, part in (("train", parts.train), ("validation", parts.validation), ("test", parts.test))
    }


def _some(part: Dataset) -> Dataset:
    return part if part.rows <= CURVE_ROWS else part.split(CURVE_ROWS / part.rows, 0)[0]


def _judge(judgement: Judgement, parts: Splits, cache: Cache) -> None:
    file = cache.judgement(judgement)
    costs = [cache.cost(training) for training in judgement.trainings]
    if any("diverged" in cost for cost in costs):
        write_atomically(file, {"diverged": True})
        return
    checkpoints = [Checkpoint.load(cache.run(training), build_compared) for training in judgement.trainings]
    for checkpoint in checkpoints:
        if isinstance(checkpoint.network, Model):
            # Last layers are compared; the error that rows of one id share is the same for all of them.
            checkpoint.network.effects = None
    with torch.no_grad():
        predict = reader(judgement.reading, checkpoints, parts.validation, judgement.reconstruction)
        dataset = parts.test if judgement.part == "test" else parts.validation
        evaluation = evaluate(checkpoints[0], dataset, predict)
        answer_ms = _answer_ms(checkpoints[0], dataset, predict)
    figures = {
        **evaluation.metrics().to_dict(),
        "epistemic": float(evaluation.epistemic.mean()),
        "aleatoric": float(evaluation.aleatoric.mean()),
        "train_cpu_seconds": sum(cost["cpu_seconds"] for cost in costs),
        "answer_ms": answer_ms,
    }
    write_atomically(file, figures)


def _answer_ms(checkpoint: Checkpoint, dataset: Dataset, predict: Predict) -> float:
    """CPU time of one thread for the mean and the 10 buckets of one request, in PyTorch."""
    target = checkpoint.schema.target
    edges = torch.linspace(target.low, target.high, 11)
    requests = list(itertools.islice(Encoded.of(dataset, checkpoint.encoding).batches(REQUEST_ROWS), REQUESTS))
    predict(requests[0][0]).mean()
    started = time.process_time()
    for batch, _ in requests:
        distribution = predict(batch)
        distribution.mean()
        distribution.cdf(edges)
    return 1e3 * (time.process_time() - started) / len(requests)
