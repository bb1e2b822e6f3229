"""The data of a comparison and its three parts, which are the same for all methods and seeds."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from learning.data.load import load
from learning.data.table import Dataset

TEST_SHARE = 0.2
# Fraction of the rows that are not test rows. Used for early stopping, tuning and CQR; no weight is fitted to it.
VALIDATION_SHARE = 0.1
SPLIT_SEED = 0


@dataclass(frozen=True)
class Splits:
    train: Dataset
    validation: Dataset
    test: Dataset
    fingerprint: str


@dataclass(frozen=True)
class Source:
    """The data given by `--data`, `--schema` and `--rows`; `rows` takes that many at random, before the split."""

    data: str
    schema: Path | None = None
    rows: int | None = None

    @property
    def name(self) -> str:
        """The source's short name: `kuairand` of `kuairand:DIR`, `rides` of `path/rides.csv`."""
        return Path(self.data.partition(":")[0]).stem

    def parts(self) -> Splits:
        """The data, loaded once per process."""
        return _parts(self)


@lru_cache(maxsize=1)
def _parts(source: Source) -> Splits:
    dataset = load(source.data, source.schema)
    if source.rows is not None and source.rows < dataset.rows:
        dataset, _ = dataset.split(source.rows / dataset.rows, SPLIT_SEED)
    fingerprint = dataset.fingerprint()
    rest, test = dataset.split(1.0 - TEST_SHARE, SPLIT_SEED)
    train, validation = rest.split(1.0 - VALIDATION_SHARE, SPLIT_SEED + 1)
    return Splits(train, validation, test, fingerprint)
