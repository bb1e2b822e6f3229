"""Overload of a real server with a short queue, through to its recovery."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from loadtest.figures import Figures
from loadtest.generator.plan import RequestMix
from loadtest.scenarios.overload import overload_figures, saturating_plan
from tests.support.onnx_models import write_version
from tests.support.running import serving_repository


def test_overload_is_measured_against_the_peak_and_refusals_are_told_apart(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    figures = Figures("overload", console=Console(quiet=True))
    with serving_repository(tmp_path, queue_rows=64, slots=1) as running:
        plan = replace(saturating_plan(running.address, RequestMix(candidates=(32, 32), distinct=32)), duration_s=2.0)
        report = overload_figures(figures, plan, seconds=2.0, calm_s=1.0)
    assert report.peak.failed == 0 or report.peak.shed == report.peak.failed
    assert report.run.ok > 0
    assert report.run.check_failures == {}
    assert report.run.intended_per_s > report.peak.goodput_per_s / 2
    assert report.overloaded.seconds == 2.0
    offered = report.overloaded.due / report.overloaded.seconds
    assert 1.5 < offered / report.peak.goodput_per_s < 2.5
    peaks = (report.peak.rows_per_s, report.peak_after.rows_per_s)
    assert min(peaks) <= report.overloaded.rows_per_s / report.goodput_share <= max(peaks)
    assert [figure.bound for figure in figures.figures] == [">= 0.9", "< 10", "<= 2", "== 0"]
    assert report.as_json()["goodput_share"] == report.goodput_share
