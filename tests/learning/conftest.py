"""Small data and small models: what is shared by the tests of training and of what it leaves behind."""

from pathlib import Path

import pytest

from learning.config import ModelConfig, TrainConfig
from learning.data.synthetic import SyntheticVideos
from learning.data.table import Table
from learning.training import Trainer

SMALL = {"levels": 20, "groups": 5, "bins": 12, "rank": 4, "hidden": (16, 8)}
BRIEF = {"epochs": 2, "batch_rows": 256}


def small_model(**options: object) -> ModelConfig:
    return ModelConfig(**{**SMALL, **options})  # type: ignore[arg-type]  # options of many types, checked by ModelConfig


def brief_training(**options: object) -> TrainConfig:
    return TrainConfig(**{**BRIEF, **options})  # type: ignore[arg-type]  # as above


@pytest.fixture(scope="session")
def videos() -> Table:
    """3,000 views of a small synthetic world."""
    return SyntheticVideos(seed=0, users=150, items=60).sample(3000, seed=0)


@pytest.fixture(scope="session", params=["qr", "cr"])
def run(request: pytest.FixtureRequest, videos: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished small run, of either head."""
    out: Path = tmp_path_factory.mktemp("runs") / str(request.param)
    Trainer(videos, "videos", small_model(head=request.param), brief_training(), out).run()
    return out
