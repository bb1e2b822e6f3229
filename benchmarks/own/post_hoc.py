"""Heads fitted to rankers that were trained without them, against the same ranker trained with the head.

A ranker and its counterpart with the head are trained on the same three quarters of the rows; the head of a frozen
ranker is fitted to the rest, which the ranker never saw.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.own import vanilla
from benchmarks.own.served import Judged, add_figures, judged
from benchmarks.own.trained import TRAIN, path_of
from benchmarks.own.vanilla import Loss
from benchmarks.truth.parts import Parts
from ghostless.heads.config import HeadName
from learning.config import FROZEN, ModelConfig
from learning.data.table import Table
from learning.own import fitting
from learning.training import Trainer
from loadtest.figures import Figures

RANKER = "DCN-v2"
RANKER_SHARE = 0.75
# NLL relative to a ranker that was trained with the head, by the loss that it was trained with instead.
BOUNDS: dict[Loss, str] = {"cr": "<= 1.005", "qr": "<= 1.005", "squared": "<= 1.03"}
MOST_TIME = "<= 0.25"


def measure(figures: Figures, parts: Parts, root: Path) -> None:
    used, fresh = parts.fitting.split(RANKER_SHARE, 1)
    heads: dict[HeadName, Judged] = {}
    for loss, bound in BOUNDS.items():
        head: HeadName = "qr" if loss == "qr" else "cr"
        if head not in heads:
            model = ModelConfig(head=head, own=path_of(RANKER))
            joint = Trainer(used, "bench", model, TRAIN).run()
            heads[head] = judged(joint, f"joint-{head}", root, parts.judged)
        found = _fitted(figures, loss, head, used, fresh, parts.judged, root)
        name = f"{RANKER} trained with {loss} loss"
        add_figures(figures, name, found.judged)
        reference = heads[head].judgement.nll
        figures.add(f"{name}: NLL / NLL of one trained with the head", found.judged.judgement.nll / reference, bound)
        figures.add(f"{name}: time of the fit / time of its training", found.fit_s / found.training_s, MOST_TIME)


@dataclass(frozen=True)
class _Fitted:
    judged: Judged
    training_s: float
    fit_s: float


def _fitted(
    figures: Figures, loss: Loss, head: HeadName, used: Table, fresh: Table, rows: Table, root: Path
) -> _Fitted:
    started = time.perf_counter()
    trained = vanilla.train(path_of(RANKER), loss, used, TRAIN, root / f"{loss}.onnx")
    training_s = time.perf_counter() - started
    started = time.perf_counter()
    ranker = fitting.load_ranker(trained.file, "features", fresh.schema, {})
    model = ModelConfig(head=head, own=FROZEN, own_options=fitting.identity(ranker))
    checkpoint = fitting.trainer(ranker, fresh, "bench", model, TRAIN).run()
    fit_s = time.perf_counter() - started
    found = judged(checkpoint, f"fitted-{loss}", root, rows)
    figures.console.print(
        f"  {RANKER} with {loss} loss, then {head} head: NLL {found.judgement.nll:.4f}, trained in {training_s:.1f} s, "
        f"fitted in {fit_s:.1f} s",
        highlight=False,
    )
    return _Fitted(found, training_s, fit_s)
