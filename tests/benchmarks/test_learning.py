"""The benchmark's own parts: its exact checks hold, and each can fail."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.learning import categorical, closed_forms, command, mixture, real_data, sampling, toy
from benchmarks.learning.exactness import measure, relative_error
from benchmarks.learning.runs import Runs
from ghostless.contract.errors import ConfigError
from ghostless.heads.closed_forms.quantile_mixture import QuantileMixture
from loadtest.figures import Figures
from tests.support.training import brief_training, small_model


@pytest.fixture
def figures() -> Figures:
    return Figures("test")


@pytest.mark.parametrize(
    "measurement",
    [closed_forms.measure_laplace, closed_forms.measure_kl, mixture.measure_mixture, categorical.measure_exact],
)
def test_every_closed_form_meets_its_bound(figures: Figures, measurement: object) -> None:
    assert callable(measurement)
    measurement(figures)
    assert not [figure for figure in figures.figures if not figure.ok]
    assert len(figures.figures) >= 8


def test_posterior_draws_meet_their_bounds(figures: Figures) -> None:
    sampling.measure_sampling(figures, rows=1, draws=4000)
    assert not [figure for figure in figures.figures if not figure.ok]


def test_a_wrong_closed_form_is_noticed(figures: Figures) -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    measure(figures, "a percent off", lambda d: exact.to(d) * 1.01, exact)
    measure(figures, "not a number", lambda d: exact.to(d) * math.nan, exact)
    assert [figure.ok for figure in figures.figures] == [False] * 4


def test_relative_error_is_the_largest() -> None:
    assert relative_error(torch.tensor([1.0, 2.2]), torch.tensor([1.0, 2.0])) == pytest.approx(0.1, rel=1e-5)


def test_entropy_of_one_gaussian() -> None:
    sd = 0.3
    one = torch.full((1, 1), sd**2)
    normal = QuantileMixture(torch.zeros(1, 1), one, torch.zeros(1), torch.ones(1))
    expected = 0.5 * math.log(2 * math.pi * math.e * sd**2)
    assert toy.differential_entropy(normal).item() == pytest.approx(expected, abs=1e-4)


def test_slope_of_a_parabola() -> None:
    distance = np.geomspace(1.0, 100.0, 10)
    assert toy.log_log_slope(distance, torch.from_numpy(3.0 * distance**2)) == pytest.approx(2.0)


class TestRuns:
    def test_trains_each_once(self, figures: Figures) -> None:
        runs = Runs(figures.console)
        first = runs.get("synthetic:1500", small_model(head="cr", backbone="sn+raw"), brief_training())
        assert runs.get("synthetic:1500", small_model(head="cr", backbone="sn+raw"), brief_training()) is first
        assert runs.all() == [first]
        assert first.seconds > 0
        real_data.measure_spectral_bound(runs, figures)
        assert [figure.ok for figure in figures.figures] == [True]

    def test_without_runs_the_spectral_bound_is_not_shown(self, figures: Figures) -> None:
        real_data.measure_spectral_bound(Runs(figures.console), figures)
        assert [figure.ok for figure in figures.figures] == [False]


class TestFolders:
    def test_missing_data_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="kuairand_pure"):
            real_data.kuairand(tmp_path)
        (tmp_path / "ncr_uber").mkdir()
        with pytest.raises(ConfigError, match=r"ncr_ride_bookings\.csv"):
            real_data.uber(tmp_path)

    def test_uber_is_found_in_either_layout(self, tmp_path: Path) -> None:
        (tmp_path / "ncr_uber").mkdir()
        (tmp_path / "ncr_uber" / "all.parquet").touch()
        assert real_data.uber(tmp_path).endswith("all.parquet")
        (tmp_path / "ncr_uber" / "ncr_ride_bookings.csv").touch()
        assert real_data.uber(tmp_path).startswith("uber:")


def test_without_real_data_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, names in (
        (closed_forms, ("measure_laplace",)),
        (mixture, ("measure_mixture",)),
        (categorical, ("measure_exact",)),
        (sampling, ("measure_sampling",)),
        (toy, ("measure_toy",)),
        (real_data, ("measure_demo", "measure_spectral_bound")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, lambda *_, **__: None)
    command.bench(data=None, json_path=tmp_path / "figures.json", quick=True)
    written = json.loads((tmp_path / "figures.json").read_text())
    # The KL's figures, which are quick.
    assert written["figures"]
    assert [part["name"] for part in written["skipped"]] == ["accuracy on KuaiRand and Uber"]
    assert "GHOSTLESS_DATA" in capsys.readouterr().out
