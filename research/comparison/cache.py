"""Cache of trained networks and evaluations: one folder per training run, one file per evaluation, named by their
options."""

import hashlib
import json
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from learning.config import ModelConfig, TrainConfig
from research.comparison.methods import Reading

# Part of every name. Increase it after any change of code that gives other figures for the same options.
CODE = 3

# own: the mixture or histogram that is served. paper: quantiles joined by straight lines, for QR methods.
Reconstruction = Literal["own", "paper"]
Part = Literal["validation", "test"]


@dataclass(frozen=True)
class Training:
    """One network. `curve`: also evaluate it after every epoch, and train it to the end; other networks stop early."""

    model: ModelConfig
    train: TrainConfig
    curve: bool = False


@dataclass(frozen=True)
class Judgement:
    """One distribution per row of a part, from one network or several."""

    reading: Reading
    trainings: tuple[Training, ...]
    part: Part = "test"
    reconstruction: Reconstruction = "own"


@dataclass(frozen=True)
class Cache:
    root: Path
    fingerprint: str

    def run(self, training: Training) -> Path:
        """Folder of a training run; the run is complete if it contains `cost.json`."""
        return self.root / "runs" / self._key(training)

    def trained(self, training: Training) -> bool:
        return (self.run(training) / "cost.json").exists()

    def cost(self, training: Training) -> dict[str, Any]:
        cost: dict[str, Any] = json.loads((self.run(training) / "cost.json").read_text())
        return cost

    def judgement(self, judgement: Judgement) -> Path:
        return self.root / "judged" / f"{self._key(judgement)}.json"

    def judged(self, judgement: Judgement) -> dict[str, Any] | None:
        """The figures, or None if they are not cached."""
        file = self.judgement(judgement)
        return json.loads(file.read_text()) if file.exists() else None

    def _key(self, what: Training | Judgement) -> str:
        content = {"code": CODE, "data": self.fingerprint, type(what).__name__: _described(what)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


def _described(what: Any) -> Any:
    """All options that differ from their defaults, so that adding an option later does not change existing names."""
    if isinstance(what, tuple):
        return [_described(item) for item in what]
    if not is_dataclass(what):
        return what
    values = {field.name: (getattr(what, field.name), field.default) for field in fields(what)}
    return {name: _described(value) for name, (value, default) in values.items() if value != default}
