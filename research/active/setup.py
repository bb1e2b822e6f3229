"""What all strategies of an experiment share: data, model, and number of labels per step."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ghostless.contract.errors import ConfigError
from ghostless.heads.config import HeadName
from learning.config import ModelConfig, TrainConfig
from learning.data.load import load
from learning.data.table import Dataset, Table, sample

TEST_SHARE = 0.2
# BALD by MC dropout needs dropout.
DROPOUT = 0.1
# Part of the cache's name; increase it after any change that gives other figures for the same options.
CODE = 3


@dataclass(frozen=True)
class Material:
    """The pool and test rows of one seed. cold: [test rows], whether the pool has almost no rows of that row's user."""

    pool: Table
    test: Table
    cold: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Setup:
    """`pool_rows`: 0 means all. Fractions are relative to the pool. `cold`: maximum number of pool rows of a cold-start
    user."""

    data: str
    schema: str = ""
    head: HeadName = "qr"
    pool_rows: int = 0
    test_rows: int = 20_000
    start: float = 0.2
    stop: float = 0.7
    step: float = 0.1
    # None: as `ghostless train`.
    epochs: int | None = None
    batch_rows: int | None = None
    cold: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.start <= self.stop <= 1 or not 0 < self.step < 1:
            raise ConfigError(
                f"labels go from --start {self.start} by --step {self.step} to --stop {self.stop}: expected "
                "0 < start <= stop <= 1 and a step between 0 and 1"
            )

    @property
    def name(self) -> str:
        """The source's short name: `kuairand` of `kuairand:DIR`."""
        return Path(self.data.partition(":")[0]).stem

    def labels(self, pool_rows: int) -> list[int]:
        """Number of labelled rows at each step."""
        count = round((self.stop - self.start) / self.step)
        return [round(pool_rows * (self.start + index * self.step)) for index in range(count + 1)]

    def training(self, seed: int) -> tuple[ModelConfig, TrainConfig]:
        """Always trains from scratch: a model that continues from a smaller set generalises worse (Ash & Adams
        2020)."""
        train = TrainConfig(epochs=self.epochs, batch_rows=self.batch_rows, seed=seed, test=0.0)
        return ModelConfig(head=self.head, dropout=DROPOUT), train

    def material(self, seed: int) -> Material:
        return _material(self, seed)

    def folder(self, root: Path) -> Path:
        """Folder of this experiment's runs; its name depends on everything that affects them."""
        content = {**asdict(self), "code": CODE, "fingerprint": _dataset(self.data, self.schema).fingerprint()}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return root / f"{self.name}-{self.head}-{digest[:8]}"


@lru_cache(maxsize=1)
def _dataset(data: str, schema: str) -> Dataset:
    return load(data, Path(schema) if schema else None)


@lru_cache(maxsize=1)
def _material(setup: Setup, seed: int) -> Material:
    rest, held_out = _dataset(setup.data, setup.schema).split(1.0 - TEST_SHARE, seed)
    pool = sample(rest, setup.pool_rows or rest.rows, seed)
    test = sample(held_out, setup.test_rows, seed)
    users = next((feature.name for feature in pool.schema.features if feature.kind == "id"), None)
    if users is None:
        return Material(pool, test, np.zeros(test.rows, np.bool_))
    known, counts = np.unique(pool.columns[users], return_counts=True)
    frequent = known[counts > setup.cold]
    return Material(pool, test, ~np.isin(test.columns[users], frequent))
