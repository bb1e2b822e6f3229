"""Models with atoms and a calibration map, exported and served: every part of an answer reads the calibrated CDF."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ghostless.client import Client, Prediction
from ghostless.contract import distribution, metadata, repository
from learning.checkpoint import Checkpoint
from serving.engines.embedded import LoadedModel, load_model
from tests.support import torch_models as models
from tests.support.running import Running, serving_repository

ROWS = 60
LEVELS = (0.05, 0.95)


@pytest.fixture(scope="module", params=["cr", "qr"])
def checkpoint(request: pytest.FixtureRequest) -> Checkpoint:
    return models.with_atoms(1.2 if request.param == "cr" else 1.0, head=request.param)


@pytest.fixture(scope="module")
def root(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    with repository.staging(root, "demo") as directory:
        models.serve(models.alone(checkpoint), directory)
        repository.publish(root, "demo", directory, promote=True)
    return root


@pytest.fixture(scope="module")
def running(root: Path) -> Iterator[Running]:
    with serving_repository(root) as running:
        yield running


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[Client]:
    with Client(running.address) as client:
        yield client


@pytest.fixture(scope="module")
def model(root: Path) -> LoadedModel:
    return load_model(repository.find(root, "demo").model_file(1), "demo", 1, (1,))


def columns(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    table = models.random_table(checkpoint.schema, ROWS, seed=5)
    return {**table.columns, "user": np.repeat(table.columns["user"][:1], ROWS).astype(object)}


def ask(client: Client, checkpoint: Checkpoint, **options: object) -> Prediction:
    sent = columns(checkpoint)
    context = {"user": str(sent.pop("user")[0])}
    return client.predict(context=context, candidates=sent, **options)  # type: ignore[arg-type]


def test_atoms_come_with_the_bins(client: Client, checkpoint: Checkpoint, model: LoadedModel) -> None:
    prediction, graph = ask(client, checkpoint), model.run(columns(checkpoint), model.outputs)
    assert prediction.atoms is not None
    assert prediction.atom_probabilities is not None
    assert prediction.bins is not None
    assert prediction.edges is not None
    assert prediction.atoms.tolist() == list(models.ATOMS)
    np.testing.assert_allclose(prediction.atom_probabilities, graph[metadata.ATOMS], rtol=1e-6, atol=1e-7)
    assert (np.diff(prediction.edges) > 0).all()
    # An atom's probability is also inside its bin.
    first = prediction.bins[:, 0]
    assert (first >= prediction.atom_probabilities[:, 0] - 1e-6).all()
    assert client.get_model("demo").atoms == models.ATOMS


def test_an_answer_without_bins_has_no_atoms(client: Client, checkpoint: Checkpoint) -> None:
    prediction = ask(client, checkpoint, outputs=["mean"])
    assert prediction.atoms is None
    assert prediction.atom_probabilities is None


def test_a_level_that_is_not_exported_changes_no_other(client: Client, checkpoint: Checkpoint) -> None:
    alone, mixed = (
        ask(client, checkpoint, quantile_levels=levels).quantiles for levels in (LEVELS, (LEVELS[0], 0.94, LEVELS[1]))
    )
    assert alone is not None
    assert mixed is not None
    np.testing.assert_array_equal(mixed[:, [0, 2]], alone)
    assert (np.diff(mixed, axis=1) >= 0.0).all()


def test_the_server_inverts_the_cdf_as_the_graph_does(model: LoadedModel, checkpoint: Checkpoint) -> None:
    graph = model.run(columns(checkpoint), model.outputs)
    knots, levels = (np.asarray(values, np.float32) for values in (model.metadata.knots, model.metadata.levels))
    own = distribution.quantiles(graph[metadata.CDF], knots, levels)
    # In units of the target's range. A segment with little mass multiplies the rounding of the CDF.
    assert np.abs(own - graph[metadata.QUANTILES]).max() / 3.0 < 2e-5
    assert np.median(np.abs(own - graph[metadata.QUANTILES])) / 3.0 < 1e-6


def test_all_levels_are_calibrated(client: Client, checkpoint: Checkpoint, model: LoadedModel) -> None:
    """Levels that are not exported too: F(q-) <= level <= F(q) of the served CDF, which is mapped."""
    levels = np.linspace(0.03, 0.97, 37).astype(np.float32)
    quantiles = ask(client, checkpoint, quantile_levels=levels.tolist()).quantiles
    graph, knots = model.run(columns(checkpoint), model.outputs), np.asarray(model.metadata.knots, np.float32)
    assert quantiles is not None
    for cdf, row in zip(graph[metadata.CDF], quantiles, strict=True):
        before = distribution.heights_at(cdf[None], knots, row, "before")[0]
        after = distribution.heights_at(cdf[None], knots, row, "at")[0]
        assert (before - 2e-3 <= levels).all()
        assert (levels <= after + 2e-3).all()


def test_an_atom_does_not_exceed_itself(client: Client, checkpoint: Checkpoint) -> None:
    prediction = ask(
        client, checkpoint, thresholds=[*models.ATOMS, float(np.nextafter(np.float32(1.25), np.float32(0)))]
    )
    assert prediction.exceedance is not None
    assert prediction.atom_probabilities is not None
    jump = prediction.exceedance[:, 3] - prediction.exceedance[:, 1]
    np.testing.assert_allclose(jump, prediction.atom_probabilities[:, 1], atol=1e-5)
    np.testing.assert_allclose(prediction.exceedance[:, 0], 1.0 - prediction.atom_probabilities[:, 0], atol=1e-5)
    np.testing.assert_allclose(prediction.exceedance[:, 2], 0.0, atol=1e-6)
