import json
from pathlib import Path

import numpy as np
import pytest

from loadtest.figures import Figures, standard_error_of_mean, standard_error_of_median


@pytest.mark.parametrize(
    ("value", "bound", "ok"),
    [
        (1.25, "<= 1.25", True),
        (1.26, "<= 1.25", False),
        (4.0, ">= 4.0", True),
        (3.99, ">= 4.0", False),
        (0, "== 0", True),
        (1, "== 0", False),
        (2.0, "< 2", False),
        (float("nan"), "<= 1", False),
        (float("nan"), ">= 1", False),
    ],
)
def test_a_figure_is_held_against_its_bound(value: float, bound: str, ok: bool) -> None:
    assert Figures("t").add("figure", value, bound).ok is ok


def test_all_figures_within_their_bounds_end_well_and_are_written(tmp_path: Path) -> None:
    figures = Figures("t")
    figures.add("ratio", 1.2, "<= 1.25")
    figures.finish(tmp_path / "out" / "figures.json")
    written = json.loads((tmp_path / "out" / "figures.json").read_text())
    expected = {"name": "ratio", "value": 1.2, "bound": "<= 1.25", "ok": True, "spread": None, "samples": 1}
    assert written["figures"] == [expected]
    assert written["skipped"] == []
    assert written["meta"].keys() >= {"commit", "date", "cores", "versions"}
    assert written["meta"]["versions"]["numpy"] == np.__version__


def test_the_spread_is_that_of_the_median_of_the_rounds() -> None:
    random = np.random.default_rng(0)
    rounds = random.normal(10.0, 2.0, 400).tolist()
    figure = Figures("t").add("rate", 10.0, ">= 1", samples=rounds)
    # Of Gaussian rounds: sqrt(pi / 2) sigma / sqrt(n).
    assert figure.spread == pytest.approx(np.sqrt(np.pi / 2) * 2.0 / 20.0, rel=0.25)
    assert figure.samples == 400


def test_one_outlier_hardly_moves_the_spread() -> None:
    calm = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01]
    usual, shaken = standard_error_of_median(calm), standard_error_of_median([*calm[:-1], 50.0])
    assert usual is not None
    assert shaken is not None
    assert shaken < 0.1


@pytest.mark.parametrize("rounds", [[], [1.0], [1.0, 2.0]])
def test_too_few_rounds_have_no_spread(rounds: list[float]) -> None:
    assert Figures("t").add("rate", 1.0, ">= 1", samples=rounds).spread is None


def test_a_given_spread_is_taken() -> None:
    figure = Figures("t").add("nll", 1.0, "<= 2", samples=[0.9, 1.0, 1.1], spread=0.5)
    assert (figure.spread, figure.samples) == (0.5, 3)


def test_the_error_of_a_mean() -> None:
    assert standard_error_of_mean([1.0, 3.0]) == pytest.approx(1.0)
    assert standard_error_of_mean([1.0]) is None


def test_a_bench_that_skips_all_of_it_says_why_and_ends_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = Figures("t")
    figures.skip("real data", "there is none")
    figures.finish(tmp_path / "figures.json")
    assert json.loads((tmp_path / "figures.json").read_text())["skipped"] == [
        {"name": "real data", "reason": "there is none"}
    ]
    assert "real data skipped: there is none" in capsys.readouterr().out


def test_one_figure_short_exits_non_zero_but_is_written(tmp_path: Path) -> None:
    figures = Figures("t")
    figures.add("ratio", 1.2, "<= 1.25")
    figures.add("speed-up", 3.0, ">= 4.0")
    with pytest.raises(SystemExit) as ended:
        figures.finish(tmp_path / "figures.json")
    assert ended.value.code == 1
    assert [figure["ok"] for figure in json.loads((tmp_path / "figures.json").read_text())["figures"]] == [True, False]


def test_no_figures_at_all_is_a_failure() -> None:
    with pytest.raises(SystemExit):
        Figures("t").finish(None)
