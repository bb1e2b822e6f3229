"""What the bench asks of groups and units, and that its figures fall short when the product does."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.truth import bench, other_tables, synthetic, units
from benchmarks.truth.judge import Judgement
from benchmarks.truth.parts import Parts, split_off
from benchmarks.truth.product import Product, Run
from benchmarks.truth.real_data import coverage_errors, deciles, history_buckets
from benchmarks.truth.store import Store
from benchmarks.truth.targets import KnownTarget, known_targets
from benchmarks.truth.variances import Served
from ghostless.contract.errors import ConfigError
from ghostless.heads.config import HeadName
from learning.config import MethodName
from learning.data.synthetic import SyntheticVideos
from loadtest.figures import Figures


def judgement(scale: float = 1.0, coverage_shift: float = 0.0) -> Judgement:
    shares = {level: level + coverage_shift for level in (0.5, 0.8, 0.9)}
    return Judgement(100, 1.0, 0.2 * scale, 0.2 * scale, 0.01, 0.4 * scale, 0.01, shares, np.zeros(100))


class Scripted(Product):
    """Answers with prepared judgements instead of training: the wanted fault at the wanted place."""

    def __init__(self, root: Path, unit_fault: float = 1.0, warnings: tuple[str, ...] = ()) -> None:
        super().__init__(Store(root), Console(quiet=True))
        object.__setattr__(self, "unit_fault", unit_fault)
        object.__setattr__(self, "said", warnings)

    def run(self, parts: Parts, head: HeadName, method: MethodName = "vbll", seed: int = 0) -> Run:
        scale = parts.fitting.schema.target.high / 3.0
        fault = 1.0 if scale == 1.0 else self.unit_fault  # type: ignore[attr-defined]
        found = judgement(scale * fault, 0.01 * (fault - 1.0))
        served = Served(*np.full((4, 100), (scale * fault) ** 2))
        return Run(found, served, (), 1.0, self.said)  # type: ignore[attr-defined]


@pytest.fixture
def parts() -> Parts:
    return split_off("tiny", SyntheticVideos(seed=0, users=30, items=20).sample(300, seed=1), 0)


@pytest.mark.parametrize(("fault", "short"), [(1.0, 0), (1.002, 0), (1.02, 6)])
def test_a_unit_that_matters_falls_short(tmp_path: Path, parts: Parts, fault: float, short: int) -> None:
    figures = Figures("test", console=Console(quiet=True))
    units.measure_units(Scripted(tmp_path, fault), figures, parts, ("cr",))
    assert len(figures.figures) == 10
    assert sum(not figure.ok for figure in figures.figures) == short  # CRPS, RMSE and variance, in two units


def test_rows_in_another_unit_are_the_same_rows(parts: Parts) -> None:
    scaled = units.in_unit(parts, "times 3,600", 3600.0)
    np.testing.assert_allclose(scaled.judged.target, parts.judged.target * 3600.0, rtol=1e-6)
    assert scaled.fitting.schema.target.high == 10_800.0
    assert scaled.fitting.columns.keys() == parts.fitting.columns.keys()
    small = units.in_unit(parts, "divided by 60", 1 / 60)
    target = small.fitting.schema.target
    assert small.fitting.target.min() >= target.low
    assert small.fitting.target.max() <= target.high
    assert units.some_rows(parts, 100).fitting.rows == 100
    assert units.some_rows(parts, 100).judged.rows == 25


@pytest.mark.parametrize(("said", "short"), [(("a bin holds 99% of the rows",), 0), ((), 1), (("slow disk",), 1)])
def test_a_missing_warning_falls_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: tuple[str, ...], short: int
) -> None:
    wide = next(target for target in known_targets() if target.must_warn)
    few: Parts = wide.parts(fitting=50, judged=50)
    monkeypatch.setattr(KnownTarget, "parts", lambda self: few)
    monkeypatch.setattr(synthetic, "known_targets", lambda: (wide,))
    figures = Figures("test", console=Console(quiet=True))
    synthetic.measure_targets(Scripted(tmp_path, warnings=said), figures, ("cr",))
    assert sum(not figure.ok for figure in figures.figures) == short


def test_groups_find_what_the_total_hides() -> None:
    """Half of the rows over-covered, half under-covered: 90% in total, wrong in every decile."""
    random = np.random.default_rng(0)
    mean = np.sort(random.random(20_000))
    wide, narrow = 0.5 + 0.45 * (2 * random.random(10_000) - 1), random.choice([0.01, 0.5, 0.5, 0.5, 0.5], 10_000)
    pit = np.concatenate([wide, narrow])
    assert abs(np.mean(np.abs(pit - 0.5) <= 0.45) - 0.9) < 0.01
    errors = coverage_errors(pit, deciles(mean))
    assert len(errors) == 10
    assert min(errors) > 8.0


def test_history_buckets_need_rows() -> None:
    history = np.repeat([0, 1, 4, 30, 500], [2_500, 1_999, 2_000, 10, 9_000])
    assert [int(bucket.sum()) for bucket in history_buckets(history)] == [2_500, 2_000, 9_000]


def test_a_table_of_another_kind_is_judged_beside_the_rival(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.random(2_000)
    rows = "\n".join(f"{a:.4f},{min(max(a + n, 0.0), 3.0):.4f}" for a, n in zip(x, random.random(2_000), strict=True))
    (tmp_path / "rides.csv").write_text(f"x,y\n{rows}\n")
    (tmp_path / "rides.toml").write_text(
        '[[features]]\nname = "x"\nkind = "number"\ntype = "float32"\n'
        '[target]\nname = "y"\nunit = "hours"\nlow = 0.0\nhigh = 3.0\n'
    )
    figures = Figures("test", console=Console(quiet=True))
    other_tables.measure_table(Scripted(tmp_path / "work"), figures, tmp_path / "rides.csv")
    crps, rmse, covered = figures.figures
    # The scripted product has CRPS 0.2 and RMSE 0.4; the best possible here are 1/6 and 1/sqrt(12).
    assert crps.value == pytest.approx(0.2 * 6, rel=0.1)
    assert rmse.value == pytest.approx(0.4 * 12**0.5, rel=0.05)
    assert (crps.ok, rmse.ok, covered.ok) == (False, False, True)


def test_real_data_must_be_named() -> None:
    with pytest.raises(ConfigError, match="GHOSTLESS_DATA"):
        bench(data=None)
