"""Bins against what they promise: every row in one bin, atoms of their own, no unit, float32 edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghostless.heads.bins import adaptive_bins, uniform_bins


def _mixed(rows: int = 20_000, seed: int = 0) -> np.ndarray:
    """30% at the lower end, 5% on 1.25, the rest skewed."""
    random = np.random.default_rng(seed)
    y = np.clip(random.lognormal(-0.5, 1.0, rows), 0.0, 3.0)
    y[: 3 * rows // 10] = 0.0
    y[3 * rows // 10 : 35 * rows // 100] = 1.25
    return y.astype(np.float32)


def test_atoms_are_the_values_with_a_percent_of_the_rows() -> None:
    y = _mixed()
    bins = adaptive_bins(y, 0.0, 3.0, 40)
    values, counts = np.unique(y, return_counts=True)
    assert bins.atoms.tolist() == values[counts >= 0.01 * len(y)].astype(float).tolist()
    assert {0.0, 1.25} <= set(bins.atoms.tolist())
    assert len(bins.classes) == len(bins.knots) - 1 == 40
    shares = bins.shares(y)
    assert shares[0] == pytest.approx((y == 0).mean())
    assert shares[np.flatnonzero((bins.widths == 0) & (bins.knots[:-1] == 1.25))[0]] == pytest.approx(0.05, abs=1e-3)


def test_each_value_falls_where_a_search_by_hand_puts_it() -> None:
    y = _mixed()
    bins = adaptive_bins(y, 0.0, 3.0, 40)
    for value in [*y[::997].astype(float), *bins.knots, -1.0, 9.0]:
        inside = float(np.clip(value, 0.0, 3.0))
        own = [j for j in range(39 + 1) if bins.knots[j] == bins.knots[j + 1] == inside]
        held = own or [j for j in range(40) if bins.knots[j] <= inside < bins.knots[j + 1]] or [39]
        assert bins.segments([value])[0] == held[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1.0, 3600.0, 1 / 60, 1e-6, 1e6]), st.integers(12, 60))
def test_the_unit_does_not_matter(seed: int, unit: float, count: int) -> None:
    y = _mixed(3_000, seed)
    here = adaptive_bins(y, 0.0, 3.0, count)
    there = adaptive_bins(y.astype(np.float64) * unit, 0.0, 3.0 * unit, count)
    assert len(here.knots) == len(there.knots)
    np.testing.assert_allclose(there.knots, here.knots * unit, rtol=1e-5, atol=1e-7 * unit)
    differ = there.segments(y.astype(np.float64) * unit) != here.segments(y)
    assert differ.mean() < 1e-3


def test_knots_are_float32_values_and_hold_the_papers_edges() -> None:
    bins = adaptive_bins(_mixed(), 0.0, 3.0, 40)
    np.testing.assert_array_equal(bins.knots, bins.knots.astype(np.float32))
    assert set(np.linspace(0, 3, 11).astype(np.float32).astype(float)) <= set(bins.knots)
    assert (np.diff(bins.knots) >= 0).all()


def test_mass_gets_more_bins_than_equal_widths_give_it() -> None:
    y = np.random.default_rng(0).lognormal(0.0, 1.0, 50_000)
    low, high = 0.0, 1000.0
    assert uniform_bins(low, high, 40).coarsest(y)[2] > 0.9
    assert adaptive_bins(y, low, high, 40).coarsest(y)[2] < 0.1


def test_a_cut_lies_halfway_between_observed_values() -> None:
    y = np.repeat(np.arange(0, 1000, 5, dtype=float), 40)
    bins = adaptive_bins(y, 0.0, 995.0, 40)
    inner = np.setdiff1d(bins.knots, np.linspace(0, 995, 11).astype(np.float32))
    assert len(inner) > 20
    assert (inner % 5 == 2.5).all()


def test_neighbouring_float32_values_can_still_be_told_apart() -> None:
    first = np.float32(1.0)
    second = np.nextafter(first, np.float32(2.0))
    y = np.concatenate([np.linspace(0, 0.9, 900), np.full(8, first), np.full(8, second), np.linspace(1.1, 2, 900)])
    bins = adaptive_bins(y, 0.0, 2.0, 400)
    assert (np.diff(bins.knots[np.append(True, np.diff(bins.knots) > 0)]) > 0).all()


def test_integers_are_atoms_with_gaps_that_hold_nothing() -> None:
    y = np.random.default_rng(0).binomial(100, 0.5, 50_000)
    bins = adaptive_bins(y, 0.0, 100.0, 40)
    assert bins.atoms.tolist() == np.unique(y).astype(float).tolist()
    shares = bins.shares(y)
    gaps = np.setdiff1d(np.arange(len(shares)), bins.classes)
    assert len(gaps) == len(bins.atoms) - 1
    assert shares[gaps].sum() == 0
    assert shares[bins.classes].sum() == pytest.approx(1.0)
    # A value that training never saw counts as the atom below it.
    assert bins.class_of_segment[bins.segments([50.4])[0]] == bins.class_of_segment[bins.segments([50.0])[0]]


def test_few_rows_do_not_make_every_value_an_atom() -> None:
    y = np.random.default_rng(0).random(120)
    assert len(adaptive_bins(np.concatenate([y, y + 1]), 0.0, 2.0, 40).atoms) == 0


def test_a_lattice_with_common_values_keeps_bins_for_the_rest() -> None:
    """Waiting minutes: each of the first twenty has over a percent, the long tail has not."""
    y = np.minimum(np.random.default_rng(0).geometric(0.04, 50_000), 400).astype(float)
    bins = adaptive_bins(y, 1.0, 400.0, 40)
    assert 15 <= len(bins.atoms) <= 40
    positive = [k for k in bins.classes if bins.widths[k] > 0]
    assert len(positive) >= 20
    gaps = np.setdiff1d(np.arange(len(bins.widths)), bins.classes)
    assert len(gaps) >= 10
    assert bins.shares(y)[gaps].sum() == 0


def test_a_range_that_the_data_hardly_use_leaves_its_bins_to_the_data() -> None:
    """Else the last bin with data would reach far beyond them, flat inside."""
    sample = np.random.default_rng(0).lognormal(0.0, 0.8, 20_000)
    bins = adaptive_bins(sample, 0.0, 10_000.0, 40)
    assert (bins.knots[0], bins.knots[-1]) == (0.0, 10_000.0)
    assert len(bins.classes) == 40
    # Both ends of the range are gaps, and every row lies in a bin between them.
    assert bins.classes.tolist() == list(range(1, 41))
    assert bins.shares(sample)[[0, -1]].tolist() == [0.0, 0.0]
    assert bins.knots[1] == pytest.approx(sample.min(), rel=1e-6)
    assert bins.knots[-2] == pytest.approx(sample.max(), rel=1e-6)
