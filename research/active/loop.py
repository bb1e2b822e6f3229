"""The loop of one strategy: train, evaluate, score the unlabelled rows of the pool, label those with the best
scores."""

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from learning.checkpoint import Checkpoint
from learning.evaluation import Evaluation, evaluate
from learning.json_files import write_atomically
from learning.training import Trainer, finished
from research.active.setup import Material, Setup
from research.active.strategies import BatchRule, choose, moments, strategy

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LearningStep:
    """One point of a curve. `chosen_*` describe the rows labelled next, relative to the mean of the unlabelled rows."""

    labels: int
    share: float
    nll: float
    crps: float
    cold_nll: float
    cold_crps: float
    cold_rows: int
    training_seconds: float
    scoring_seconds: float = 0.0
    scored_rows: int = 0
    chosen_epistemic: float = 1.0
    chosen_aleatoric: float = 1.0
    chosen_users: float = 1.0


@dataclass(frozen=True)
class StrategyRun:
    """One strategy with one seed; `start` and `full` are the first and last points, which all strategies of a seed
    share."""

    setup: Setup
    folder: Path
    strategy: str
    batch: BatchRule
    seed: int

    @property
    def label(self) -> str:
        return self.strategy if self.batch == "top" else f"{self.strategy}+{self.batch}"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.strategy.replace(':', '_')}-{self.batch}-seed{self.seed}.json"

    def steps(self) -> list[LearningStep]:
        return [LearningStep(**step) for step in self._stored()["steps"]]

    @property
    def done(self) -> bool:
        return bool(self._stored()["complete"])

    def _stored(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"complete": False, "steps": [], "labelled": []}
        return json.loads(self.file.read_text()) if self.file.exists() else empty

    def __call__(self) -> None:
        """Run to the end, continuing after the last finished step."""
        material, stored = self.setup.material(self.seed), self._stored()
        counts = self.setup.labels(material.pool.rows) if self.strategy != "full" else [material.pool.rows]
        if self.strategy == "start":
            counts = counts[:1]
        steps = [LearningStep(**step) for step in stored["steps"]]
        labelled = np.asarray(stored["labelled"], np.int64) if steps else _first(material, counts[0], self.seed)
        for index in range(len(steps), len(counts)):
            checkpoint, seconds = self._train(material, labelled, shared=self.strategy == "start" or not index)
            step = _judged(evaluate(checkpoint, material.test), material, len(labelled), seconds)
            if index + 1 < len(counts):
                step, labelled = self._buy(checkpoint, material, step, labelled, counts[index + 1])
            steps.append(step)
            content = {"strategy": self.strategy, "batch": self.batch, "seed": self.seed, "setup": asdict(self.setup)}
            content |= {"complete": index + 1 == len(counts), "steps": [asdict(step) for step in steps]}
            write_atomically(self.file, {**content, "labelled": [] if content["complete"] else labelled.tolist()})

    def _train(self, material: Material, labelled: Positions, shared: bool) -> tuple[Checkpoint, float]:
        """`shared`: the first model of a seed, which is the same for all strategies and is trained only once."""
        out = self.folder / f"start-seed{self.seed}" if shared and self.strategy != "full" else None
        started = time.process_time()
        if out is not None and finished(out):
            return Checkpoint.load(out), 0.0
        options = self.setup.training(self.seed)
        checkpoint = Trainer(material.pool.take(labelled), self.setup.data, *options, out).run()
        return checkpoint, time.process_time() - started

    def _buy(
        self, checkpoint: Checkpoint, material: Material, step: LearningStep, labelled: Positions, wanted: int
    ) -> tuple[LearningStep, Positions]:
        """The step, including what was labelled after it, and all rows that are labelled then."""
        left = np.setdiff1d(np.arange(material.pool.rows), labelled)
        pool = material.pool.take(left)
        seed = 1000 * self.seed + len(labelled)
        started = time.process_time()
        scores = strategy(self.strategy)(checkpoint, pool, seed)
        chosen = choose(scores, wanted - len(labelled), self.batch, seed)
        seconds = time.process_time() - started
        split, users = moments(checkpoint, pool), _first_ids(pool)
        step = replace(
            step,
            scoring_seconds=seconds,
            scored_rows=pool.rows,
            chosen_epistemic=float(split.epistemic[chosen].mean() / split.epistemic.mean()),
            chosen_aleatoric=float(split.aleatoric[chosen].mean() / split.aleatoric.mean()),
            chosen_users=len(np.unique(users[chosen])) / len(chosen),
        )
        return step, np.sort(np.concatenate([labelled, left[chosen]]))


def _first(material: Material, count: int, seed: int) -> Positions:
    """The initial labels: random, and the same for all strategies of a seed."""
    return np.sort(np.random.default_rng((seed, 7)).permutation(material.pool.rows)[:count])


def _first_ids(pool: Any) -> npt.NDArray[Any]:
    name = next((feature.name for feature in pool.schema.features if feature.kind == "id"), None)
    return np.arange(pool.rows) if name is None else np.asarray(pool.columns[name])


def _judged(evaluation: Evaluation, material: Material, labels: int, seconds: float) -> LearningStep:
    whole, cold = evaluation.metrics(), int(material.cold.sum())
    part = _rows(evaluation, material.cold).metrics() if cold else None
    return LearningStep(
        labels=labels,
        share=labels / material.pool.rows,
        nll=whole.nll,
        crps=whole.crps,
        cold_nll=part.nll if part else float("nan"),
        cold_crps=part.crps if part else float("nan"),
        cold_rows=cold,
        training_seconds=seconds,
    )


def _rows(evaluation: Evaluation, chosen: npt.NDArray[np.bool_]) -> Evaluation:
    """The same evaluation for some of the rows."""
    by_row = ("y", "mean", "aleatoric", "epistemic", "logit_variance", "cdf", "masses")
    return replace(evaluation, **{name: getattr(evaluation, name)[chosen] for name in by_row})
