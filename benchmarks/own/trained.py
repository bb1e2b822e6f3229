"""DCN-v2, DIN and a transformer over a history, trained with our head by our recipe, against the built-in network."""

import time
from pathlib import Path

from benchmarks.own.served import Judged, add_figures, judged
from benchmarks.truth.parts import Parts
from learning.config import ModelConfig, TrainConfig
from learning.training import Trainer
from loadtest.figures import Figures

RANKERS = {"DCN-v2": "Dcn", "DIN": "Din", "transformer": "Transformer"}
# As good as the built-in network with the same head, effects and features.
AS_GOOD = "<= 1.005"
# The judged rows are not among those for fitting.
TRAIN = TrainConfig(test=0.0)


def path_of(name: str) -> str:
    """Import path of a ranker."""
    return f"benchmarks.own.rankers:{RANKERS[name]}"


def measure(figures: Figures, parts: Parts, root: Path) -> None:
    built_in = _run(figures, parts, root, "built-in", ModelConfig(head="cr"))
    plain = _run(figures, parts, root, "built-in without cross layer", ModelConfig(head="cr", backbone="sn+raw"))
    for name in RANKERS:
        found = _run(figures, parts, root, name, ModelConfig(head="cr", own=path_of(name)))
        add_figures(figures, name, found)
        figures.add(f"{name}: NLL / NLL of the built-in network", _ratio(found, built_in), AS_GOOD)
        if name != "transformer":
            figures.add(f"{name}: NLL / NLL of the built-in without cross layer", _ratio(found, plain), "< 1")


def _ratio(found: Judged, other: Judged) -> float:
    return found.judgement.nll / other.judgement.nll


def _run(figures: Figures, parts: Parts, root: Path, name: str, model: ModelConfig) -> Judged:
    started = time.perf_counter()
    checkpoint = Trainer(parts.fitting, "bench", model, TRAIN).run()
    seconds = time.perf_counter() - started
    found = judged(checkpoint, name.lower().replace(" ", "-"), root, parts.judged)
    quality = f"NLL {found.judgement.nll:.4f}, CRPS {found.judgement.crps:.4f}"
    figures.console.print(f"  {name}: {quality}, trained in {seconds:.1f} s", highlight=False)
    return found
