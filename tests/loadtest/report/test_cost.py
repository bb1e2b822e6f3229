"""Fleets and prices, worked by hand."""

from pathlib import Path

import pytest

from loadtest.compare.findings import Comparison, round_ratios
from loadtest.errors import PlanError
from loadtest.report.cost import Prices, cpu_price_per_million_rows, memory_gb_s_per_million_rows, size_fleet
from loadtest.report.tables import advantage
from tests.support.comparisons import example


def test_a_fleet_is_sized_by_the_rate_that_holds_the_objective() -> None:
    found = example()
    vbll = found.of("qr", "vbll")
    assert vbll is not None
    # 720 requests/s on two cores hold the objective; half of it is planned for: 180 a core.
    fleet = size_fleet(vbll, found, Prices(core_hour=0.05, gb_hour=0.01, peak_per_s=9000, utilisation=0.5))
    assert fleet is not None
    assert fleet.cores == 50
    assert fleet.memory_gb == pytest.approx(50 * 0.1)
    assert fleet.per_month == pytest.approx((50 * 0.05 + 5 * 0.01) * 730)


def test_what_misses_the_objective_has_no_fleet() -> None:
    found = example()
    slow = found.of("cr", "mc-dropout")
    assert slow is not None
    assert size_fleet(slow, found, Prices()) is None


def test_cpu_and_memory_per_million_rows() -> None:
    ensemble = example().of("qr", "ensemble")
    assert ensemble is not None
    assert cpu_price_per_million_rows(ensemble, Prices(core_hour=0.36)) == pytest.approx(4000 / 225 * 0.0001)
    # 0.2 GB for as long as a million rows take at 225 requests/s of 256 rows.
    assert memory_gb_s_per_million_rows(ensemble, 256) == pytest.approx(0.2 * 1e6 / (225 * 256))


def test_ratios_are_taken_within_a_round() -> None:
    # The machine was twice as slow in the second round, which both variants felt.
    assert round_ratios([100.0, 50.0, 100.0], [25.0, 12.5, 20.0]) == [4.0, 4.0, 5.0]


def test_the_advantage_is_over_the_same_head() -> None:
    found = example()
    ensemble = found.of("cr", "ensemble")
    assert ensemble is not None
    assert advantage(found, ensemble) == pytest.approx(4.0)
    assert advantage(found, ensemble, on_engine=True) == pytest.approx(4.0)
    ensemble.engine_ms = []
    assert advantage(found, ensemble, on_engine=True) is None


@pytest.mark.parametrize(
    "wrong", [{"core_hour": -1.0}, {"gb_hour": -0.1}, {"peak_per_s": 0.0}, {"utilisation": 0.0}, {"utilisation": 1.2}]
)
def test_impossible_prices_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(PlanError, match="expected"):
        Prices(**wrong)


def test_a_file_that_is_no_report_is_refused() -> None:
    with pytest.raises(PlanError, match="no report of `ghostless loadtest compare`"):
        Comparison.parse('{"format": 1}', Path("some.json"))
    with pytest.raises(PlanError, match="has format 99, this version reads 1"):
        Comparison.parse('{"format": 99}', Path("some.json"))
