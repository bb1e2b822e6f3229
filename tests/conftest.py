"""An environment without GHOSTLESS_*, and fixtures shared by several packages."""

# Must come before any import of torch: `learning` sets how torch's threads wait (see learning/__init__.py).
import learning  # isort: skip

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

# Reads GHOSTLESS_DATA, which is removed from the environment of the tests.
from tests.support import sources
from tests.support.command_line import Ghostless

if TYPE_CHECKING:
    from learning.data.table import Table

__all__ = ["learning", "sources"]


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[None]:
    """Remove GHOSTLESS_* settings and an ignored SIGHUP, so that tested commands and servers do not inherit them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("GHOSTLESS_")]:
            patch.delenv(name)
        # Inherited as ignored where the suite runs under nohup; servers would then ignore it, too.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        yield


@pytest.fixture
def ghostless(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ghostless:
    return Ghostless(monkeypatch, capsys)


# Only the fixtures that need torch import it, so that tests of the server do not wait for it.


@pytest.fixture(scope="session")
def videos() -> "Table":
    """3,000 views from a small synthetic population."""
    from learning.data.synthetic import SyntheticVideos

    return SyntheticVideos(seed=0, users=150, items=60).sample(3000, seed=0)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two versions of one model, trained on few users and videos with many rows each.

    Only a trained model can detect rows that are out of distribution.
    """
    from learning.config import TrainConfig
    from learning.data.video import VIDEO_SCHEMA
    from learning.training import Trainer
    from tests.support import torch_models as models

    root = tmp_path_factory.mktemp("trained")
    views = models.random_table(VIDEO_SCHEMA, 8000)
    # Users and videos differ, so that a model is uncertain about new ones.
    random = np.random.default_rng(0)
    for name in ("user_id", "video_id"):
        views.target[:] += 0.3 * random.standard_normal(60).astype(np.float32)[views.columns[name]]
    np.clip(views.target, views.schema.target.low, views.schema.target.high, out=views.target)
    # Durations start at 5 s: a range that begins at 0 would also contain them in seconds.
    views.columns["duration_ms"][:] = 5_000.0 + 1_000.0 * views.columns["duration_ms"]
    for version in (1, 2):
        trainer = Trainer(views, "random", models.config(head="cr"), TrainConfig(epochs=2, seed=version))
        models.serve(models.alone(trainer.run()), root / "demo" / str(version))
    return root
