"""The graph answers as torch does, for every form a model can take, and is made of what it should be made of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from export import graph, options, reference
from export.builder import Array
from export.errors import UnsupportedModelError
from export.options import ExportOptions, Layout
from export.verification import TOLERANCE, error_against, relative_error
from ghostless.contract import distribution, metadata
from learning.checkpoint import Checkpoint
from learning.pruning import UnitUse, prune, unit_use
from learning.schema import Target
from tests.support import torch_models as models

SIDES: tuple[distribution.Side, ...] = ("before", "at")
BINS = ((0.0, 0.6), (0.6, 1.5), (1.5, 3.0))
HEADS = ("qr", "cr")
GRID = tuple(np.linspace(-0.5, 3.5, 17).tolist())
FORBIDDEN = {"If", "Loop", "Scan", "TopK", "Bernoulli", "Dropout", "Multinomial"}


def checkpoint(**changes: Any) -> Checkpoint:
    return models.shaken(models.EVERY_KIND, models.config(**changes))


def errors(served: models.ExportedGraph, columns: dict[str, Array]) -> dict[str, float]:
    """Relative error of every output against torch."""
    got, expected = served(columns), reference.answer(served.networks, columns, served.layout)
    assert list(got) == list(served.layout.outputs)
    for name, values in got.items():
        assert values.dtype == np.float32
        assert values.shape == expected[name].shape
        assert np.isfinite(values).all()
    return {name: error_against(expected, got, name, served.layout) for name in got}


def assert_exact(served: models.ExportedGraph, count: int = 200) -> None:
    for seed in (0, 1):
        for name, error in errors(served, models.some_rows(served.networks.first, count, seed)).items():
            assert error <= TOLERANCE["fp32"], name


@pytest.mark.parametrize("backbone", ["cross", "sn+cross", "sn", "sn+raw", "spectral-residual"])
@pytest.mark.parametrize("covariance", ["dense", "lowrank", "diagonal", "deterministic"])
@pytest.mark.parametrize("head", HEADS)
def test_every_form_answers_as_torch_does(head: str, covariance: str, backbone: str, tmp_path: Path) -> None:
    form = {"method": covariance} if covariance == "deterministic" else {"covariance": covariance}
    made = checkpoint(head=head, backbone=backbone, **form)
    if made.model.backbone.cross is not None:
        # Made for embeddings of 0.1, not of 0.5 as here: logits of hundreds have no fourth digit in single precision.
        with torch.no_grad():
            for factor in made.model.backbone.cross.factors:
                factor.mul_(0.5)
    assert_exact(models.serve(models.alone(made), tmp_path))


def test_groups_of_one_level(tmp_path: Path) -> None:
    assert_exact(models.serve(models.alone(checkpoint(levels=20, groups=20)), tmp_path))


@pytest.mark.parametrize("head", HEADS)
def test_density_on_a_grid_beyond_the_range(head: str, tmp_path: Path) -> None:
    served = models.serve(models.alone(checkpoint(head=head)), tmp_path, ExportOptions(grid=GRID))
    assert served.layout.outputs[-1] == metadata.DENSITY
    assert_exact(served)


def test_proposition_1_density(tmp_path: Path) -> None:
    wanted = ExportOptions(grid=GRID, outputs=(metadata.MEAN, metadata.EMG_DENSITY))
    served = models.serve(models.alone(checkpoint()), tmp_path, wanted)
    assert served.layout.outputs == (metadata.MEAN, metadata.EMG_DENSITY)
    assert_exact(served)


@pytest.mark.parametrize("activation", ["silu", "leaky", "relu"])
@pytest.mark.parametrize("backbone", ["cross", "spectral-residual"])
def test_every_activation(activation: str, backbone: str, tmp_path: Path) -> None:
    assert_exact(models.serve(models.alone(checkpoint(backbone=backbone, activation=activation)), tmp_path))


@pytest.mark.parametrize("rank", [1, 3, 1000])
def test_a_cross_layer_of_any_rank(rank: int, tmp_path: Path) -> None:
    assert_exact(models.serve(models.alone(checkpoint(cross_rank=rank)), tmp_path))


@pytest.mark.parametrize("head", HEADS)
def test_a_pruned_network(head: str, tmp_path: Path) -> None:
    pruned = checkpoint(head=head, activation="relu")
    use = unit_use(pruned.model, [reference.encode(pruned, models.some_rows(pruned))])
    kept = [largest.clone() for largest in use.largest]
    for largest in kept:
        largest[::3] = 0.0
    before = sum(pruned.model.backbone.hidden)
    dead = sum(int((largest == 0.0).sum()) for largest in kept)
    assert prune(pruned.model, UnitUse(use.deviations, tuple(kept))) == dead
    assert sum(pruned.model.backbone.hidden) == before - dead
    assert_exact(models.serve(models.alone(pruned), tmp_path))


@pytest.mark.parametrize("head", HEADS)
def test_edges_may_be_fewer_than_knots(head: str, tmp_path: Path) -> None:
    networks = models.alone(checkpoint(head=head))
    merged = models.serve(networks, tmp_path / "merged", ExportOptions(levels=(0.3, 0.77), edges=(0.0, 0.6, 1.5, 3.0)))
    assert_exact(merged)
    columns = models.some_rows(networks.first)
    whole = models.serve(networks, tmp_path / "fine")
    fine, starts = whole(columns)[metadata.BINS], whole.layout.edges[:-1]
    by_hand = np.stack([fine[:, (starts >= low) & (starts < high)].sum(1) for low, high in BINS], 1)
    got = merged(columns)
    assert np.allclose(got[metadata.BINS], by_hand, atol=1e-6)
    assert got[metadata.QUANTILES].shape[1] == 2


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("outputs", [("epistemic",), ("bins", "cdf"), ("quantiles",), ("mean", "aleatoric")])
def test_a_subset_of_outputs_answers_the_same_with_fewer_nodes(
    head: str, outputs: tuple[str, ...], tmp_path: Path
) -> None:
    networks = models.alone(checkpoint(head=head))
    whole = models.serve(networks, tmp_path / "whole")
    part = models.serve(networks, tmp_path / "part", ExportOptions(outputs=outputs))
    assert set(part.loaded.outputs) == set(outputs)
    assert len(part.model.graph.node) < len(whole.model.graph.node)
    columns = models.some_rows(networks.first)
    answers = whole(columns)
    for name, values in part(columns).items():
        assert relative_error(values, answers[name]) <= 1e-5


@pytest.mark.parametrize("head", HEADS)
def test_a_covariance_per_output_is_refused(head: str) -> None:
    refused = checkpoint(head=head, covariance="per-output")
    layout = options.resolve(ExportOptions(), refused)
    with pytest.raises(
        UnsupportedModelError, match=r"per-output covariance is for comparison only.*--covariance lowrank"
    ):
        graph.build(models.alone(refused), layout, "fp32")


def every_graph(directory: Path) -> list[models.ExportedGraph]:
    dropped = models.shaken(models.EVERY_KIND, models.config(method="deterministic", dropout=0.2))
    return [
        *(
            models.serve(networks, directory / f"{head}{place}")
            for head in HEADS
            for place, networks in enumerate((models.alone(checkpoint(head=head)), models.ensemble((0, 1), head=head)))
        ),
        models.serve(graph.Networks.fixed_dropout(dropped, 3), directory / "mc"),
    ]


def test_graphs_are_valid_straight_and_sampling_free(tmp_path: Path) -> None:
    for served in every_graph(tmp_path):
        onnx.checker.check_model(served.model, full_check=True)
        operators = {node.op_type for node in served.model.graph.node}
        assert not operators & FORBIDDEN
        assert not [name for name in operators if name.startswith("Random")]
        assert {opset.domain: opset.version for opset in served.model.opset_import} == {"": 18, "ai.onnx.ml": 3}
        assert served.model.ir_version == 9


OF_THE_POSTERIOR = ("posterior/", "probit/", "moved", "sensitivity", "gini/weighted")


@pytest.mark.parametrize("head", HEADS)
def test_a_posterior_adds_columns_to_the_last_product_and_no_matrix_of_its_own(head: str, tmp_path: Path) -> None:
    twin = models.serve(models.alone(checkpoint(head=head, method="deterministic")), tmp_path / "twin")
    served = models.serve(models.alone(checkpoint(head=head)), tmp_path / "vbll")
    products = [
        [
            node.name
            for node in graph.model.graph.node
            if node.op_type in ("Gemm", "MatMul") and not node.name.startswith(OF_THE_POSTERIOR)
        ]
        for graph in (twin, served)
    ]
    assert products[0] == products[1]
    # Those that are left out have a single column or row each, or are a bias.
    tensors = {tensor.name: tensor.dims for tensor in served.model.graph.initializer}
    own = [dims for name, dims in tensors.items() if name.startswith(OF_THE_POSTERIOR)]
    assert own
    assert all(1 in dims or len(dims) == 1 for dims in own)


def with_variances(drawn: Checkpoint, low: float, high: float) -> Checkpoint:
    """Logarithms of phi's standard deviations between the two."""
    posterior = drawn.model.head.posterior
    with torch.no_grad():
        posterior.get_parameter("log_sd").uniform_(low, high)
    return drawn


@pytest.mark.parametrize("backbone", ["sn", "sn+raw", "spectral-residual"])
@pytest.mark.parametrize(("covariance", "low"), [("lowrank", -12.0), ("diagonal", -30.0)])
def test_variances_that_are_orders_apart_and_nothing(
    covariance: str, low: float, backbone: str, tmp_path: Path
) -> None:
    far = with_variances(checkpoint(head="cr", covariance=covariance, backbone=backbone), low, 0.0)
    assert_exact(models.serve(models.alone(far), tmp_path))


def test_no_variance_at_all(tmp_path: Path) -> None:
    certain = with_variances(checkpoint(head="cr", covariance="diagonal"), -200.0, -200.0)
    served = models.serve(models.alone(certain), tmp_path)
    assert_exact(served)
    assert not served(models.some_rows(certain))[metadata.EPISTEMIC].any()


def test_small_variances_in_half_precision(tmp_path: Path) -> None:
    """As float16 weights they would leave its range."""
    small = with_variances(checkpoint(head="cr"), -12.0, -9.0)
    served = models.serve(models.alone(small), tmp_path, ExportOptions(precision="fp16"))
    for name, error in errors(served, models.some_rows(small)).items():
        assert error <= TOLERANCE["fp16"], name


@pytest.mark.parametrize("head", HEADS)
def test_a_range_that_does_not_begin_at_zero(head: str, tmp_path: Path) -> None:
    schema = replace(models.EVERY_KIND, target=Target("rating", "stars", 1.0, 5.0))
    served = models.serve(models.alone(models.shaken(schema, models.config(head=head))), tmp_path)
    assert_exact(served)
    assert served(models.some_rows(served.networks.first))[metadata.QUANTILES].min() >= 1.0


def test_what_is_returned_is_a_distribution(tmp_path: Path) -> None:
    levels = tuple(np.linspace(0.01, 0.99, 50).tolist())
    networks = [models.alone(checkpoint(head=head)) for head in HEADS] + [models.ensemble((0, 1, 2))]
    for place, network in enumerate(networks):
        served = models.serve(network, tmp_path / str(place), ExportOptions(levels=levels))
        got = served(models.some_rows(network.first, 500))
        assert (np.diff(got[metadata.QUANTILES]) >= -1e-6).all()
        assert (got[metadata.QUANTILES] >= 0.0 - 1e-6).all()
        assert (got[metadata.QUANTILES] <= 3.0 + 1e-5).all()
        assert (got[metadata.BINS] >= 0).all()
        assert np.allclose(got[metadata.BINS].sum(1), 1.0, atol=1e-5)
        assert np.allclose(got[metadata.CDF][:, [0, -1]], [0.0, 1.0], atol=1e-6)
        assert (got[metadata.ALEATORIC] >= 0).all()
        assert (got[metadata.EPISTEMIC] >= 0).all()


def test_far_from_the_data_a_histograms_noise_is_small_and_exact(tmp_path: Path) -> None:
    """Where s^2 is huge nearly all is epistemic; total - epistemic would be rounding, and could be negative."""
    ignorant = checkpoint(head="cr")
    with torch.no_grad():
        ignorant.model.head.posterior.get_parameter("log_sd").fill_(5.0)
    served = models.serve(models.alone(ignorant), tmp_path)
    columns = models.some_rows(ignorant, 500)
    got, expected = served(columns), reference.answer(served.networks, columns, served.layout)
    assert got[metadata.LOGIT_VARIANCE].max() > 1e9
    for name in (metadata.ALEATORIC, metadata.CATEGORICAL_ALEATORIC):
        assert (got[name] > 0).all()
        # Each value by itself, however small beside the others.
        assert relative_error(got[name], expected[name], floor=0.0) <= 1e-4


def test_returned_quantiles_are_those_of_the_returned_cdf(tmp_path: Path) -> None:
    """F(q-) <= level <= F(q), as the contract reads F, wherever the level falls into a segment that has mass."""
    for head in HEADS:
        served = models.serve(models.alone(checkpoint(head=head)), tmp_path / head)
        got = served(models.some_rows(served.networks.first))
        layout: Layout = served.layout
        knots = layout.knots.astype(np.float32)
        for cdf, quantiles in zip(got[metadata.CDF], got[metadata.QUANTILES], strict=True):
            before, after = (distribution.heights_at(cdf[None], knots, quantiles, side)[0] for side in SIDES)
            # A level inside an atom lies between its two heights.
            assert (before - 2e-3 <= layout.levels).all()
            assert (layout.levels <= after + 2e-3).all()


@pytest.mark.parametrize("head", HEADS)
def test_a_row_alone_answers_as_in_a_batch(head: str, tmp_path: Path) -> None:
    served = models.serve(models.alone(checkpoint(head=head)), tmp_path)
    columns = models.some_rows(served.networks.first)
    together = served(columns)
    for row in range(0, len(columns["price"]), 23):
        single = served({name: values[row : row + 1] for name, values in columns.items()})
        for name, values in single.items():
            assert relative_error(values, together[name][row : row + 1], floor=0.1) <= 1e-5, name
