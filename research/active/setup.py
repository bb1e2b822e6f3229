"""What all strategies of an experiment share: the data, the model, and how many labels are bought at a time."""

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
# BALD by MC dropout needs units to drop.
DROPOUT = 0.1
# Goes into the cache's name; to be raised by any change after which the same options give other figures.
CODE = 3


@dataclass(frozen=True)
class Material:
    """One seed's pool and test rows. cold: [test rows], whether the pool has next to nothing of that row's user."""

    pool: Table
    test: Table
    cold: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Setup:
    """`pool_rows` 0 takes all; shares are of the pool; `cold`: most rows of a user that count as cold start."""

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
        """How many rows are labelled at each step."""
        count = round((self.stop - self.start) / self.step)
        return [round(pool_rows * (self.start + index * self.step)) for index in range(count + 1)]

    def training(self, seed: int) -> tuple[ModelConfig, TrainConfig]:
        """Always from scratch: a model warmed on a smaller set generalises worse (Ash & Adams 2020)."""
        train = TrainConfig(epochs=self.epochs, batch_rows=self.batch_rows, seed=seed, test=0.0)
        return ModelConfig(head=self.head, dropout=DROPOUT), train

    def material(self, seed: int) -> Material:
        return _material(self, seed)

    def folder(self, root: Path) -> Path:
        """Where this experiment's runs are kept: named by all that they depend on."""
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
