"""What may be chosen at export, and what may not."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from export.errors import OptionError
from export.options import LEVELS, ExportOptions, Layout, choose_knots, resolve
from ghostless.contract import metadata
from learning.checkpoint import Checkpoint
from tests.support import torch_models as models


@cache
def checkpoint(head: str = "qr", method: str = "vbll") -> Checkpoint:
    return models.video_checkpoint(head=head, method=method)


def resolved(head: str = "qr", method: str = "vbll", **options: Any) -> Layout:
    return resolve(ExportOptions(**options), checkpoint(head, method))


def test_defaults_of_quantile_regression() -> None:
    layout = resolved()
    assert layout.levels.tolist() == list(LEVELS)
    assert np.allclose(layout.edges, np.linspace(0, 3, 11))
    assert len(layout.knots) == 21
    uncertainty = ("aleatoric", "epistemic", "logit_variance")
    assert layout.outputs == ("mean", "quantiles", "bins", "cdf", *uncertainty, "unknown_ids")


def test_defaults_of_a_histogram() -> None:
    layout = resolved("cr")
    assert np.allclose(layout.edges, np.linspace(0, 3, 13))
    assert np.array_equal(layout.edges, layout.knots)
    gini = ("categorical_aleatoric", "categorical_epistemic", "categorical_epistemic_delta")
    uncertainty = ("aleatoric", "epistemic", "logit_variance")
    assert layout.outputs == ("mean", "quantiles", "bins", "cdf", *uncertainty, *gini, "unknown_ids")


def test_knots_contain_the_edges_and_follow_the_mass() -> None:
    random = np.random.default_rng(0)
    sample = random.normal(1.0, 0.05, 5000).astype(np.float32)
    edges = np.array([0.0, 0.7, 1.4, 3.0])
    knots = choose_knots(edges, sample, 24)
    assert len(knots) == 25
    assert set(edges) <= set(knots)
    assert (np.diff(knots) > 0).all()
    near = (knots > 0.7) & (knots < 1.4)
    assert near.sum() >= 18
    # What a linear CDF can be wrong by is spread evenly: no segment holds much of it.
    areas = np.diff(np.searchsorted(np.sort(sample), knots)) / len(sample) * np.diff(knots)
    assert areas.max() < 0.02


def test_more_edges_than_knots_are_all_kept() -> None:
    edges = np.linspace(0.0, 3.0, 50)
    assert np.array_equal(choose_knots(edges, np.zeros(10, np.float32), 20), edges)


@pytest.mark.parametrize("values", [[0.0], [3.0], [0.0, 1.0, 2.0, 3.0]])
def test_a_target_of_few_values_does_not_cut_segments_to_nothing(values: list[float]) -> None:
    sample = np.repeat(np.array(values, np.float32), 100)
    knots = choose_knots(np.linspace(0.0, 3.0, 11), sample, 400)
    assert (np.diff(knots.astype(np.float32)) > 1e-5).all()
    assert len(knots) >= 11


def test_knots_are_chosen_from_training() -> None:
    layout = resolved(knots=40)
    sample = checkpoint().encoding.target_sample
    assert len(layout.knots) == 41
    # More knots below 1 than above 2, as there are more rows.
    assert (sample < 1.0).sum() > (sample > 2.0).sum()
    assert (layout.knots < 1.0).sum() > (layout.knots > 2.0).sum()


@pytest.mark.parametrize(
    "levels", [(), (0.0, 0.5), (0.5, 1.0), (0.5, 0.5), (0.9, 0.1), (float("nan"),), (0.5, float("inf")), (-0.1,)]
)
def test_levels_must_increase_inside_the_unit_interval(levels: tuple[float, ...]) -> None:
    with pytest.raises(OptionError, match=r"levels must increase strictly inside \(0, 1\)"):
        resolved(levels=levels)


@pytest.mark.parametrize("head", ["qr", "cr"])
@pytest.mark.parametrize(
    "edges", [(0.0,), (0.0, 2.0), (0.5, 3.0), (0.0, 2.0, 1.0, 3.0), (0.0, 1.0, 1.0, 3.0), (0.0, float("nan"), 3.0)]
)
def test_edges_must_cover_the_targets_range(head: str, edges: tuple[float, ...]) -> None:
    with pytest.raises(
        OptionError, match=r"edges must increase strictly from 0\.0 to 3\.0, the target's range; got \[0\."
    ) as refused:
        resolved(head, edges=edges)
    assert "np." not in str(refused.value)


def test_edges_of_a_histogram_must_be_its_own() -> None:
    assert resolved("cr", edges=(0.0, 0.25, 3.0)).edges.tolist() == [0.0, 0.25, 3.0]
    with pytest.raises(OptionError, match=r"among its 13 bin edges; \[0\.3\] are not"):
        resolved("cr", edges=(0.0, 0.3, 3.0))


@pytest.mark.parametrize("grid", [(1.0, 1.0), (2.0, 1.0), (0.0, float("nan")), (0.0, float("inf"))])
def test_grids_must_increase(grid: tuple[float, ...]) -> None:
    with pytest.raises(OptionError, match="grid points must be finite and increase strictly"):
        resolved(grid=grid)


def test_densities_come_with_a_grid() -> None:
    assert resolved(grid=(0.0, 1.0)).outputs[-1] == metadata.DENSITY
    assert resolved(grid=(0.0, 1.0), outputs=("emg_density",)).outputs == ("emg_density",)
    with pytest.raises(OptionError, match=r"has no output density; it has mean, .*; densities need --grid"):
        resolved(outputs=("density",))


@pytest.mark.parametrize(
    ("head", "method", "output"),
    [
        ("qr", "vbll", "categorical_epistemic"),
        ("cr", "vbll", "emg_density"),
        ("qr", "deterministic", "emg_density"),
        ("qr", "vbll", "median"),
    ],
)
def test_outputs_that_a_model_has_not_are_refused(head: str, method: str, output: str) -> None:
    with pytest.raises(OptionError, match=f"this {head} model has no output {output}; it has mean") as refused:
        resolved(head, method, outputs=("mean", output), grid=(0.0, 1.0))
    assert "--grid" not in str(refused.value)


def test_outputs_keep_the_contracts_order() -> None:
    assert resolved(outputs=("epistemic", "mean")).outputs == ("mean", "epistemic")
