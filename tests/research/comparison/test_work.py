"""A network that is judged after every epoch, cut off in between."""

from pathlib import Path
from typing import Any

import pytest

from learning.config import TrainConfig
from learning.evaluation import evaluate
from research.comparison.cache import Cache, Training
from research.comparison.source import Source
from research.comparison.work import Work
from tests.support.training import small_model


def test_a_curve_that_was_cut_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("synthetic:1500")
    train = TrainConfig(epochs=3, batch_rows=128, test=0.0, calibration=0.0)
    training = Training(small_model(head="cr"), train, curve=True)
    cache = Cache(tmp_path / "cut", source.parts().fingerprint)
    judged = 0

    def interrupted(*parts: Any) -> Any:
        nonlocal judged
        judged += 1
        # Three parts an epoch, so in the third one.
        if judged > 7:
            raise KeyboardInterrupt
        return evaluate(*parts)

    with monkeypatch.context() as patch:
        patch.setattr("research.comparison.work.evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Work(source, cache.root, training)()
    assert not cache.trained(training)
    Work(source, cache.root, training)()
    whole = Cache(tmp_path / "whole", cache.fingerprint)
    Work(source, whole.root, training)()
    assert [point["epoch"] for point in cache.cost(training)["curve"]] == [1, 2, 3]
    assert cache.cost(training)["curve"] == whole.cost(training)["curve"]
