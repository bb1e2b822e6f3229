"""Models that were really trained and exported, in small: only such a one knows what is out of distribution."""

from pathlib import Path

import pytest

from learning.config import TrainConfig
from learning.data.video import VIDEO_SCHEMA
from learning.training import Trainer
from tests.export import models


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two versions of one model; users and videos are few, and training met each of them often."""
    root = tmp_path_factory.mktemp("trained")
    views = models.random_table(VIDEO_SCHEMA, 8000)
    for version in (1, 2):
        trainer = Trainer(views, "random", models.config(head="cr"), TrainConfig(epochs=2, seed=version))
        models.serve(models.alone(trainer.run()), root / "demo" / str(version))
    return root
