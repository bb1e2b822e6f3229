"""What may be chosen at export, and what may not."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from export.errors import OptionError
from export.options import LEVELS, ExportOptions, Layout, resolve
from ghostless.contract import metadata
from learning.checkpoint import Checkpoint
from tests.support import torch_models as models


@cache
def checkpoint(head: str = "qr", method: str = "vbll") -> Checkpoint:
    return models.video_checkpoint(head=head, method=method)


def resolved(head: str = "qr", method: str = "vbll", **options: Any) -> Layout:
    return resolve(ExportOptions(**options), checkpoint(head, method))


@pytest.mark.parametrize("head", ["qr", "cr"])
def test_defaults(head: str) -> None:
    layout = resolved(head)
    assert layout.levels.tolist() == list(LEVELS)
    assert np.array_equal(layout.knots, checkpoint(head).model.head.knots.double().numpy())
    assert np.array_equal(layout.edges, np.unique(layout.knots))
    gini = ("categorical_aleatoric", "categorical_epistemic", "categorical_epistemic_delta") if head == "cr" else ()
    uncertainty = ("aleatoric", "epistemic", "epistemic_candidate", "epistemic_last_layer", "logit_variance")
    atoms = ("atoms",) if len(layout.atoms) else ()
    assert layout.outputs == ("mean", "quantiles", "bins", "cdf", *uncertainty, *gini, *atoms, "unknown_ids")


def test_atoms_are_knots_that_appear_twice() -> None:
    layout = resolve(ExportOptions(), models.with_atoms(head="cr"))
    assert layout.atoms.tolist() == list(models.ATOMS)
    assert layout.map_heights == models.MAP
    assert (np.diff(layout.edges) > 0).all()
    bins = layout.bins_of_segments()
    assert bins.shape == (len(layout.knots) - 1, len(layout.edges) - 1)
    assert (bins.sum(1) == 1.0).all()
    # An atom lies in the bin that begins with it, the one at the upper end in the last.
    atoms = bins[np.diff(layout.knots) == 0].argmax(1)
    assert layout.edges[atoms[:-1]].tolist() == list(models.ATOMS[:-1])
    assert atoms[-1] == len(layout.edges) - 2


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
        OptionError, match=r"edges must increase strictly from 0 to 3, the target's range; got \[0\."
    ) as refused:
        resolved(head, edges=edges)
    assert "np." not in str(refused.value)


@pytest.mark.parametrize("head", ["qr", "cr"])
def test_edges_must_be_knots(head: str) -> None:
    knots = np.unique(resolved(head).knots)
    chosen = (0.0, float(f"{knots[4]:.7g}"), 3.0)
    assert resolved(head, edges=chosen).edges.tolist() == [0.0, knots[4], 3.0]
    stray = float(0.5 * (knots[4] + knots[5]))
    with pytest.raises(OptionError, match=r"edges must be among the model's knots, 0, .* are not"):
        resolved(head, edges=(0.0, stray, 3.0))


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
