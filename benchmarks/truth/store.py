"""Finished runs on disk, one folder each, named by data and configuration, so that an interrupted bench continues."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Part of every name. Increase it after a change of this bench that gives other arrays for the same configuration.
CODE = 2
ARRAYS, FACTS = "arrays.npz", "run.json"


@dataclass(frozen=True)
class Saved:
    """The results of a run: arrays by name, and facts (seconds, configuration, warnings)."""

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Store:
    root: Path

    def folder(self, label: str, fingerprint: str, *configurations: Any) -> Path:
        """Name of a run; the label is for people, the digest distinguishes runs. Configurations are dataclasses."""
        content = [CODE, fingerprint, *({type(one).__name__: asdict(one)} for one in configurations)]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        return self.root / f"{label.replace(' ', '-').lower()}-{digest}"

    def load(self, folder: Path) -> Saved | None:
        """None if the folder contains no finished run."""
        facts = folder / FACTS
        if not facts.is_file():
            return None
        with np.load(folder / ARRAYS) as arrays:
            return Saved({name: arrays[name] for name in arrays.files}, json.loads(facts.read_text()))

    def save(self, folder: Path, saved: Saved) -> None:
        """The facts are written last and atomically, so a folder that has them is complete."""
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"partial{os.getpid()}.npz"
        np.savez(partial, allow_pickle=False, **dict(saved.arrays))
        partial.replace(folder / ARRAYS)
        partial = folder / f"partial{os.getpid()}.json"
        partial.write_text(json.dumps(dict(saved.facts), indent=1) + "\n")
        partial.replace(folder / FACTS)
