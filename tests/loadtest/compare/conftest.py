"""Variants of one head, trained on few rows: what they cost to make, not what they are worth, matters to tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.compare import trained_models
from loadtest.compare.variants import Variant


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loadtest")


@pytest.fixture(scope="session")
def few_rows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained_models, "DATA", "synthetic:3000")
        yield


@pytest.fixture(scope="session")
def variants(folder: Path, few_rows: None) -> list[Variant]:
    return trained_models.prepare(folder, cores=1, say=lambda _: None, heads=("cr",))
