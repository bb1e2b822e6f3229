"""An environment without GHOSTLESS_*, and what tests of several packages share."""

# Before any test imports torch: `learning` sets how its threads wait (see learning/__init__.py).
import learning  # isort: skip

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

# Reads GHOSTLESS_DATA, which no test sees in its environment.
from tests.support import sources
from tests.support.command_line import Ghostless

if TYPE_CHECKING:
    from learning.data.table import Table

__all__ = ["learning", "sources"]


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[None]:
    """Settings of whoever runs the tests must not reach the commands and servers that are tested."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("GHOSTLESS_")]:
            patch.delenv(name)
        yield


@pytest.fixture
def ghostless(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ghostless:
    return Ghostless(monkeypatch, capsys)


# torch is imported in the fixtures that need it: the tests of the server need not wait for it.


@pytest.fixture(scope="session")
def videos() -> "Table":
    """3,000 views of a small synthetic world."""
    from learning.data.synthetic import SyntheticVideos

    return SyntheticVideos(seed=0, users=150, items=60).sample(3000, seed=0)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two versions of one model; users and videos are few, and training met each of them often.

    Only a model that was really trained knows what is out of distribution.
    """
    from learning.config import TrainConfig
    from learning.data.video import VIDEO_SCHEMA
    from learning.training import Trainer
    from tests.support import torch_models as models

    root = tmp_path_factory.mktemp("trained")
    views = models.random_table(VIDEO_SCHEMA, 8000)
    # Users and videos that differ, so that there is something not to know of a new one.
    random = np.random.default_rng(0)
    for name in ("user_id", "video_id"):
        views.target[:] += 0.3 * random.standard_normal(60).astype(np.float32)[views.columns[name]]
    np.clip(views.target, views.schema.target.low, views.schema.target.high, out=views.target)
    # From 5 s on: a range that begins at 0 holds these durations in seconds, too.
    views.columns["duration_ms"][:] = 5_000.0 + 1_000.0 * views.columns["duration_ms"]
    for version in (1, 2):
        trainer = Trainer(views, "random", models.config(head="cr"), TrainConfig(epochs=2, seed=version))
        models.serve(models.alone(trainer.run()), root / "demo" / str(version))
    return root
