"""The bounds of `ghostless bench load`, on findings whose ratios are known."""

import io

from rich.console import Console

from benchmarks.load.command import compare_figures
from loadtest.figures import Figures
from tests.support.comparisons import example


def figures_of(change: float) -> dict[str, bool]:
    """Name and verdict of each figure, when QR's fused ensemble answers `change` times as much."""
    found, figures = example(), Figures("test", console=Console(file=io.StringIO()))
    ensemble = found.of("qr", "ensemble")
    assert ensemble is not None
    ensemble.saturated_per_s = [change * rate for rate in ensemble.saturated_per_s]
    compare_figures(figures, found)
    return {figure.name: figure.ok for figure in figures.figures}


def test_every_figure_holds_where_vbll_is_fast_enough() -> None:
    verdicts = figures_of(1.0)
    assert all(verdicts.values())
    assert "throughput of QR-VBLL / deterministic, end to end" in verdicts
    assert "throughput of CR-VBLL / 5x ensemble, fused, on the engine" in verdicts


def test_a_faster_ensemble_falls_short_of_its_bound() -> None:
    short = [name for name, ok in figures_of(1.2).items() if not ok]
    assert short == ["throughput of QR-VBLL / 5x ensemble, fused, end to end"]


def test_a_wrong_answer_under_load_is_a_failure() -> None:
    found, figures = example(), Figures("test", console=Console(file=io.StringIO()))
    found.measured[0].check_failures["rows"] = 1
    compare_figures(figures, found)
    assert [figure.name for figure in figures.figures if not figure.ok] == ["wrong responses under load"]
