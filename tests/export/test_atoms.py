"""Atoms, temperature and calibration map in the graph: against torch, and what verification catches without them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from export import cdf_nodes, graph, histogram_nodes, reference, verification
from export.builder import GraphBuilder, Value
from export.cdf_nodes import Segments
from export.graph import Networks
from export.last_layer import last_layer
from export.options import Layout
from ghostless.contract import distribution, metadata
from ghostless.heads.calibration import Calibration
from learning.checkpoint import Checkpoint
from tests.support import torch_models as models

HEADS = ("cr", "qr")


def network(head: str, method: str = "vbll") -> Checkpoint:
    return models.with_atoms(1.3 if head == "cr" else 1.0, head=head, method=method)


def report(checkpoint: Checkpoint, directory: Path) -> verification.Report:
    served = models.serve(models.alone(checkpoint), directory)
    return verification.verify(served, served.networks, served.layout, "fp32")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("method", ["vbll", "deterministic"])
@pytest.mark.usefixtures("few_rows")
def test_a_graph_with_atoms_answers_as_the_model_does(head: str, method: str, tmp_path: Path) -> None:
    checked = report(network(head, method), tmp_path)
    assert checked.ok, checked.failures()
    assert any(check.name.startswith("atoms: against torch") for check in checked.checks)


@pytest.mark.parametrize("head", HEADS)
def test_all_outputs_are_read_from_the_same_heights(head: str, tmp_path: Path) -> None:
    checkpoint = network(head)
    served = models.serve(models.alone(checkpoint), tmp_path)
    got, layout = served(models.some_rows(checkpoint)), served.layout
    cdf, knots = got[metadata.CDF].astype(np.float64), layout.knots
    mass = np.diff(cdf, axis=1)
    assert np.abs(cdf[:, 0]).max() < 1e-6
    assert np.abs(cdf[:, -1] - 1.0).max() < 1e-6
    values, masses = distribution.atoms(got[metadata.CDF], knots.astype(np.float32))
    assert values.tolist() == list(models.ATOMS)
    assert np.allclose(got[metadata.ATOMS], masses, atol=1e-6)
    assert (got[metadata.ATOMS].max(0) > 0.0).all()
    assert np.allclose(got[metadata.BINS], mass @ layout.bins_of_segments(), atol=1e-6)
    centres, widths = 0.5 * (knots[1:] + knots[:-1]), np.diff(knots)
    mean = mass @ centres
    variance = (mass * (centres - mean[:, None]) ** 2).sum(1) + mass @ (widths**2 / 12.0)
    assert np.allclose(got[metadata.MEAN], mean, atol=1e-5)
    total = got[metadata.ALEATORIC] + got[metadata.EPISTEMIC]
    assert np.allclose(total, variance, rtol=1e-4, atol=1e-6)
    assert got[metadata.ALEATORIC].min() >= 0.0
    assert got[metadata.EPISTEMIC].min() >= 0.0
    assert (np.diff(got[metadata.QUANTILES], axis=1) >= 0.0).all()


@pytest.mark.parametrize("head", HEADS)
def test_a_level_inside_an_atom_is_its_value(head: str, tmp_path: Path) -> None:
    checkpoint = network(head)
    served = models.serve(models.alone(checkpoint), tmp_path)
    got, layout = served(models.some_rows(checkpoint)), served.layout
    place = int(np.searchsorted(layout.knots, models.ATOMS[1], side="left"))
    before, after = got[metadata.CDF][:, place, None], got[metadata.CDF][:, place + 1, None]
    # Segments with next to no mass are crossed as if they had LEAST_MASS, which can take a level out of the atom.
    inside = (before + 0.02 < layout.levels) & (layout.levels < after - 0.02)
    assert inside.any()
    at_atom = got[metadata.QUANTILES][inside]
    assert np.abs(at_atom - models.ATOMS[1]).max() < 1e-2


def _no_map(g: GraphBuilder, scaled: Value, layout: Layout) -> Segments:
    unscaled = g.node("Mul", [scaled, g.constant("pieces", 1.0 / 20.0)])
    return cdf_nodes._segments(g, unscaled, layout)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.usefixtures("few_rows")
def test_a_dropped_map_is_caught(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdf_nodes, "_calibrated", _no_map)
    assert "cdf: against torch" in report(network(head), tmp_path).failures()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.usefixtures("few_rows")
def test_a_map_that_only_quantiles_see_is_caught(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated, quantiles = cdf_nodes._calibrated, cdf_nodes.quantiles
    mapped: list[Segments] = []

    def both(g: GraphBuilder, scaled: Value, layout: Layout) -> Segments:
        mapped.append(calibrated(g, scaled, layout))
        return _no_map(g, scaled, layout)

    monkeypatch.setattr(cdf_nodes, "_calibrated", both)
    monkeypatch.setattr(cdf_nodes, "quantiles", lambda g, _, layout: quantiles(g, mapped[0], layout))
    failures = report(network(head), tmp_path).failures()
    assert "quantiles: against torch" not in failures
    for name in ("cdf", "bins", "atoms", "mean", "aleatoric"):
        assert f"{name}: against torch" in failures


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.usefixtures("few_rows")
def test_an_atom_without_its_jump_is_caught(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F(y-) = F(y) at every atom: its mass goes to the segment before it."""
    segments = cdf_nodes._segments

    def flat(g: GraphBuilder, cdf: Value, layout: Layout) -> Segments:
        places = np.arange(len(layout.knots))
        opens = np.flatnonzero(np.diff(layout.knots) == 0)
        places[opens] = opens + 1
        return segments(g, g.node("Gather", [cdf, g.constant("flat", places, np.int64)], axis=0), layout)

    monkeypatch.setattr(cdf_nodes, "_segments", flat)
    failures = report(network(head), tmp_path).failures()
    assert "atoms: against torch" in failures
    assert "cdf: against torch" in failures


@pytest.mark.usefixtures("few_rows")
def test_a_dropped_temperature_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "served_layer", last_layer)
    assert "cdf: against torch" in report(network("cr"), tmp_path).failures()


@pytest.mark.usefixtures("few_rows")
def test_a_temperature_missing_from_the_split_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = histogram_nodes.last_layer_variance
    monkeypatch.setattr(histogram_nodes, "last_layer_variance", lambda g, moments, s2, _: own(g, moments, s2, 1.0))
    failures = report(network("cr"), tmp_path).failures()
    assert "epistemic: against torch" in failures


@pytest.mark.usefixtures("few_rows")
def test_a_map_of_other_rows_is_caught(tmp_path: Path) -> None:
    """Graph and model agree, but the map does not fit the rows that it is said to be fitted on."""
    checkpoint = network("cr")
    kept = models.random_table(checkpoint.schema, 1500, seed=1, atoms=models.ATOMS)
    failures = report(replace(checkpoint, calibration=kept), tmp_path / "other").failures()
    assert "PIT's distance from uniform" in failures
    phi = checkpoint.model.phi(reference.encode(checkpoint, kept.columns))
    checkpoint.model.head.calibrate(phi, torch.from_numpy(kept.target))
    assert "PIT's distance" not in report(replace(checkpoint, calibration=kept), tmp_path / "own").failures()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.usefixtures("few_rows")
def test_members_with_bins_of_their_own_are_read_at_the_first_ones(head: str, tmp_path: Path) -> None:
    members = [
        models.shaken(
            models.EVERY_KIND,
            models.config(head=head, method="deterministic"),
            seed,
            models.random_table(models.EVERY_KIND, seed=seed, atoms=models.ATOMS[:seed]),
        )
        for seed in range(3)
    ]
    networks = Networks.ensemble(members)
    assert not networks.share_bins
    served = models.serve(networks, tmp_path)
    checked = verification.verify(served, networks, served.layout, "fp32")
    assert checked.ok, checked.failures()


@pytest.mark.usefixtures("few_rows")
def test_a_pool_has_one_map_of_its_own(tmp_path: Path) -> None:
    pool = replace(models.pool(), calibration=Calibration(1.0, models.MAP))
    # The members' own maps are not those of their average.
    for checkpoint in pool.checkpoints:
        checkpoint.model.head.calibration = Calibration(1.0, tuple(sorted(1.0 - height for height in models.MAP)))
    served = models.serve(Networks.trained(pool), tmp_path)
    assert served.layout.map_heights == models.MAP
    checked = verification.verify(served, served.networks, served.layout, "fp32")
    assert checked.ok, checked.failures()
