"""A whole comparison in small: real servers, real load, figures that hang together."""

from dataclasses import replace
from pathlib import Path

from loadtest.compare.cores import split_cores
from loadtest.compare.findings import Comparison
from loadtest.compare.measure import compare
from loadtest.compare.rounds import Settings
from loadtest.compare.variants import Variant
from loadtest.report.cost import Prices
from loadtest.report.files import read_report, write_report

SETTINGS = Settings(
    candidates=32, rounds=2, round_s=0.4, engine_round_s=0.02, shares=(0.05,), probe_s=0.4, search_steps=1
)


def test_variants_are_measured_in_turns_and_reported(variants: list[Variant], folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    chosen = [variant for variant in variants if variant.kind in ("vbll", "five-call")]
    # An objective that any machine holds at some rate, so that the search has something to find.
    settings = replace(SETTINGS, objective_ms=1500.0)
    found = compare(chosen, settings, split_cores(), tmp_path / "logs", "ghostless loadtest compare", said.append)
    vbll, five = (found.of("cr", kind) for kind in ("vbll", "five-call"))
    assert vbll is not None
    assert five is not None
    for measured in (vbll, five):
        assert len(measured.saturated_per_s) == len(measured.engine_ms) == settings.rounds
        assert min(measured.saturated_per_s) > 0
        assert min(measured.cpu_s_per_million_rows) > 0
        assert measured.resident_mb > 20
        assert measured.check_failures == {}
        assert measured.rate_at_objective > 0
        assert {point.rate_per_s for point in measured.points} & set(found.rates)
        assert measured.uncertainty is not None
        assert measured.uncertainty.epistemic_known > 0
    # Five runs of the graph can't be as cheap as one.
    assert min(five.engine_ms) > min(vbll.engine_ms)
    assert min(five.cpu_s_per_million_rows) > min(vbll.cpu_s_per_million_rows)
    assert any("round 2 of 2" in line for line in said)
    write_report(found, Prices(), tmp_path)
    again = read_report(tmp_path / "report.json")
    assert isinstance(again, Comparison)
    assert again.dump() == found.dump()
