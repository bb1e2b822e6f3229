"""What is shared by the tests of training and of what it leaves behind."""

from pathlib import Path

import pytest

from learning.data.table import Table
from learning.training import Trainer
from tests.support.training import brief_training, small_model


@pytest.fixture(scope="session", params=["qr", "cr"])
def run(request: pytest.FixtureRequest, videos: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished small run, of either head."""
    out: Path = tmp_path_factory.mktemp("runs") / str(request.param)
    Trainer(videos, "videos", small_model(head=request.param), brief_training(), out).run()
    return out
