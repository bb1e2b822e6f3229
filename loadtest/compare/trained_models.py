"""Trains and exports the models to compare: networks of one shape, trained on the same rows, one export per variant.

The cost of a model does not depend on its quality, so training is short.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

from export import publish
from export.graph import Networks
from export.options import ExportOptions
from export.triton_config import TritonOptions
from ghostless.contract import repository
from learning import training
from learning.checkpoint import Checkpoint
from learning.config import MethodName, ModelConfig, TrainConfig
from learning.data.load import load
from loadtest.compare.variants import HeadName, Variant, VariantKind

MEMBERS = 5
SAMPLES = 25
HEADS: tuple[HeadName, ...] = get_args(HeadName)
DATA = "synthetic:60000"
# No rows are held out: members of an ensemble use the same rows and share vocabularies and knots.
_TRAINING = TrainConfig(steps=200, test=0.0, calibration=0.0)
# All networks have dropout, because MC-dropout needs it and all shapes must be equal.
_DROPOUT = 0.1
# The paper's layer widths, for which the bounds of `bench load` were set. The default network is narrower.
_HIDDEN = (256, 128, 64)

Say = Callable[[str], None]


def prepare(folder: Path, cores: int, say: Say, heads: Sequence[HeadName] = HEADS) -> list[Variant]:
    """Train, export and verify the variants that `folder` does not contain yet. `cores`: cores for the instances of a
    Triton."""
    builder = _VariantBuilder(folder, TritonOptions(cpu_instances=cores), say)
    return [variant for head in heads for variant in builder.variants(head)]


@dataclass(frozen=True)
class _VariantBuilder:
    folder: Path
    triton: TritonOptions
    say: Say

    def variants(self, head: HeadName) -> list[Variant]:
        single: dict[VariantKind, Callable[[], Networks]] = {
            "deterministic": partial(self._single, head, "deterministic", 0),
            "vbll": partial(self._single, head, "vbll", 0),
            "ensemble": lambda: Networks.ensemble(
                [self._trained(head, "deterministic", seed) for seed in range(MEMBERS)]
            ),
            "mc-dropout-fixed": lambda: Networks.fixed_dropout(self._trained(head, "deterministic", 0), SAMPLES),
            "mc-dropout": lambda: Networks.mc_dropout(self._trained(head, "deterministic", 0), SAMPLES),
        }
        variants = []
        for kind, networks in single.items():
            variant = Variant(head, kind, self._root(head, kind), f"{head}-{kind}")
            self._export(variant.repository, variant.model, networks)
            variants.append(variant)
        names = tuple(f"{head}-member-{index}" for index in range(MEMBERS))
        root = self._root(head, "five-call")
        for seed, name in enumerate(names):
            self._export(root, name, partial(self._single, head, "deterministic", seed))
        variants.insert(3, Variant(head, "five-call", root, f"{head}-five-call", names))
        return variants

    def _root(self, head: HeadName, kind: VariantKind) -> Path:
        return self.folder / "models" / f"{head}-{kind}"

    def _single(self, head: HeadName, method: MethodName, seed: int) -> Networks:
        return Networks.ensemble([self._trained(head, method, seed)])

    def _trained(self, head: HeadName, method: MethodName, seed: int) -> Checkpoint:
        run = self.folder / "runs" / f"{head}-{method}-{seed}"
        if not training.finished(run):
            self.say(f"training {head} {method}, seed {seed}")
            config = TrainConfig(**{**vars(_TRAINING), "seed": seed})
            model = ModelConfig(head=head, method=method, hidden=_HIDDEN, dropout=_DROPOUT)
            training.Trainer(load(DATA), DATA, model, config, run).run()
        return Checkpoint.load(run)

    def _export(self, root: Path, name: str, networks: Callable[[], Networks]) -> None:
        if root.is_dir() and name in repository.scan(root):
            return
        self.say(f"exporting and verifying {name}")
        publish.export_model(networks(), name, root, ExportOptions(), triton=self.triton)
