"""A run that was cut goes on where it was."""

from pathlib import Path
from typing import Any

import pytest

from learning.evaluation import evaluate
from research.active.loop import StrategyRun
from research.active.setup import Setup


def test_a_run_goes_on_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup("synthetic:2000", epochs=1, step=0.25, test_rows=300)
    whole, cut = (StrategyRun(setup, tmp_path / name, "epistemic", "top", 0) for name in ("whole", "cut"))
    whole()

    def interrupted(*parts: Any) -> Any:
        if cut.file.exists():
            raise KeyboardInterrupt
        return evaluate(*parts)

    with monkeypatch.context() as patch:
        # Comes between a step's training and its record.
        patch.setattr("research.active.loop.evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cut()
    assert not cut.done
    assert len(cut.steps()) == 1
    cut()
    assert cut.done
    assert [one.nll for one in cut.steps()] == [one.nll for one in whole.steps()]
