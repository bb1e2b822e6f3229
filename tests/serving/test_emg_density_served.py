"""Proposition 1's density through Predict: the graph's own, the paper's formula, and only for those who ask."""

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.learning import references
from export import reference
from export.options import ExportOptions
from ghostless.client import Client, Prediction, RejectedError
from ghostless.contract import metadata, repository
from ghostless.v1 import prediction_pb2 as pb
from learning.checkpoint import Checkpoint
from tests.support import torch_models as models
from tests.support.running import Running, serving_repository

ROWS = 20
# Beyond both ends of the target's range, on its atoms and between them.
GRID = (-0.5, 0.0, 0.05, 0.7, 1.25, 1.9, 2.95, 3.5)
OUTPUTS = (metadata.MEAN, metadata.QUANTILES, metadata.BINS, metadata.CDF, metadata.DENSITY, metadata.EMG_DENSITY)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return models.with_atoms(head="qr", sigma=0.1)


@pytest.fixture(scope="module")
def graph(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> models.ExportedGraph:
    directory = tmp_path_factory.mktemp("exported")
    return models.serve(models.alone(checkpoint), directory, ExportOptions(grid=GRID, outputs=OUTPUTS))


@pytest.fixture(scope="module")
def running(graph: models.ExportedGraph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root: Path = tmp_path_factory.mktemp("repository")
    for name in ("demo", "without"):
        with repository.staging(root, name) as directory:
            if name == "demo":
                (directory / graph.file.name).write_bytes(graph.file.read_bytes())
            else:
                models.serve(graph.networks, directory, ExportOptions(grid=GRID))
            repository.publish(root, name, directory, promote=True)
    with serving_repository(root, default_model="demo") as running:
        yield running


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[Client]:
    with Client(running.address) as client:
        yield client


@pytest.fixture(scope="module")
def columns(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    table = models.random_table(checkpoint.schema, ROWS, seed=5)
    return {**table.columns, "user": np.repeat(table.columns["user"][:1], ROWS).astype(object)}


def ask(client: Client, columns: dict[str, np.ndarray], *outputs: str, model: str = "") -> Prediction:
    candidates = {name: values for name, values in columns.items() if name != "user"}
    return client.predict(
        context={"user": str(columns["user"][0])}, candidates=candidates, outputs=outputs, model=model
    )


def test_it_is_the_graphs_own(client: Client, columns: dict[str, np.ndarray], graph: models.ExportedGraph) -> None:
    prediction = ask(client, columns, "emg_density")
    np.testing.assert_array_equal(prediction.density_grid, np.array(GRID, np.float32))
    np.testing.assert_array_equal(prediction.emg_density, graph(columns)[metadata.EMG_DENSITY])
    assert (prediction.mean, prediction.density, prediction.bins) == (None, None, None)
    both = ask(client, columns, "density", "emg_density")
    np.testing.assert_array_equal(both.density, graph(columns)[metadata.DENSITY])
    np.testing.assert_array_equal(both.emg_density, prediction.emg_density)


def test_it_is_proposition_1_averaged_over_the_levels(
    client: Client, columns: dict[str, np.ndarray], checkpoint: Checkpoint
) -> None:
    """By quadrature of the paper's definition, asymmetric Laplace times posterior; the slope of the warp by hand."""
    served = ask(client, columns, "emg_density").emg_density
    assert served is not None
    head = copy.deepcopy(checkpoint.model.head).double()
    with torch.no_grad():
        phi = checkpoint.model.phi(reference.encode(checkpoint, columns)).double()
        m = head.posterior.outputs(phi).numpy()
        s = torch.sqrt(head.posterior.variance(phi)).unsqueeze(-1).mul(head.posterior.scales).numpy()
    kappa, z = (head.get_buffer(name).numpy() for name in ("levels", "z"))
    knots = head.edges.numpy()
    for place, point in enumerate(GRID):
        if not 0.0 <= point <= 3.0:
            assert (served[:, place] == 0.0).all(), "the target has no density beyond its range"
            continue
        i = int(np.searchsorted(knots, point, side="right")) - 1
        slope = (z[i + 1] - z[i]) / (knots[i + 1] - knots[i])
        at = z[i] + slope * (point - knots[i])
        for row in (0, ROWS - 1):
            levels = [
                np.exp(references.log_density(at - m[row, k], s[row, k], kappa[k], 0.1)) for k in range(len(kappa))
            ]
            assert served[row, place] == pytest.approx(slope * np.mean(levels), rel=1e-4), (point, row)


def test_a_request_that_names_no_outputs_gets_none(
    client: Client, columns: dict[str, np.ndarray], running: Running
) -> None:
    prediction = ask(client, columns)
    assert prediction.emg_density is None
    assert prediction.density is not None
    described = client.get_model("demo")
    assert described.outputs == ("mean", "quantiles", "bins", "density")
    assert described.outputs_on_request == ("emg_density",)
    # A client generated before the output existed has no name for its number.
    assert max(running.stub.GetModel(pb.GetModelRequest()).outputs) == pb.OUTPUT_DENSITY


def test_a_model_exported_without_it_refuses(client: Client, columns: dict[str, np.ndarray]) -> None:
    assert client.get_model("without").outputs_on_request == ()
    with pytest.raises(RejectedError, match="has no OUTPUT_EMG_DENSITY; it has OUTPUT_MEAN"):
        ask(client, columns, "emg_density", model="without")
    with pytest.raises(RejectedError, match=r"has no OUTPUT_UNCERTAINTY; it has .*OUTPUT_EMG_DENSITY"):
        ask(client, columns, "uncertainty", model="demo")
