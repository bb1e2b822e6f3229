"""A QR and a CR network in one graph: their mixture, by the law of total variance, through every door."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from export import publish, reference, rows, verification
from export.errors import OptionError
from export.graph import Networks
from export.options import ExportOptions
from ghostless.contract import metadata, repository
from ghostless.contract.metadata import ModelMetadata
from learning.trained import TrainedModel
from serving.engines.embedded import load_model
from tests.support import torch_models as models
from tests.support.command_line import Ghostless

pytestmark = pytest.mark.usefixtures("few_rows")

WEIGHT = 0.3


@pytest.fixture(scope="module", params=["vbll", "deterministic"])
def trained(request: pytest.FixtureRequest) -> TrainedModel:
    return models.pool(qr_weight=WEIGHT, method=request.param)


@pytest.fixture(scope="module")
def served(trained: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> models.ExportedGraph:
    return models.serve(Networks.trained(trained), tmp_path_factory.mktemp("pool"), ExportOptions(grid=(0.5, 1.0, 2.0)))


def test_the_graph_is_what_torch_computes(served: models.ExportedGraph) -> None:
    columns = models.some_rows(served.networks.first)
    expected, got = reference.answer(served.networks, columns, served.layout), served(columns)
    assert set(got) == set(served.layout.outputs)
    for name in served.layout.outputs:
        assert verification.error_against(expected, got, name, served.layout) <= 1e-4, name


def test_the_pool_is_the_mixture_of_its_two_networks(
    served: models.ExportedGraph, trained: TrainedModel, tmp_path: Path
) -> None:
    """Against the two graphs alone: CDF, bins and density are averages, and the variance is a mixture's."""
    columns = models.some_rows(trained.first)
    wanted = ExportOptions(grid=(0.5, 1.0, 2.0))
    cr, qr = (
        models.serve(models.alone(checkpoint), tmp_path / checkpoint.model_config.head, wanted)(columns)
        for checkpoint in trained.checkpoints
    )
    got = served(columns)
    for name in (metadata.MEAN, metadata.CDF, metadata.BINS, metadata.DENSITY, metadata.ALEATORIC):
        np.testing.assert_allclose(got[name], WEIGHT * qr[name] + (1 - WEIGHT) * cr[name], rtol=2e-4, atol=2e-5)
    second = sum(
        weight * (one[metadata.ALEATORIC] + one[metadata.EPISTEMIC] + one[metadata.MEAN].astype(float) ** 2)
        for weight, one in ((WEIGHT, qr), (1 - WEIGHT, cr))
    )
    total = second - got[metadata.MEAN].astype(float) ** 2
    np.testing.assert_allclose(got[metadata.ALEATORIC] + got[metadata.EPISTEMIC], total, rtol=1e-3, atol=1e-4)
    assert np.all(got[metadata.EPISTEMIC] >= WEIGHT * (1 - WEIGHT) * (qr["mean"] - cr["mean"]) ** 2 * 0.999 - 1e-6)


def test_it_describes_itself(served: models.ExportedGraph) -> None:
    described = ModelMetadata.parse(served.loaded.properties, "model.onnx")
    assert described.head == "pool"
    assert described.method == served.networks.first.model_config.method
    assert described.calibration["nll"] == 1.25
    assert described.out_of_distribution_over == 0.5
    assert metadata.CATEGORICAL_ALEATORIC not in served.layout.outputs


def test_a_rare_last_bin_is_not_lost_in_rounding(tmp_path: Path) -> None:
    """A pool that is next to all CR, whose last bin has a millionth of the mass: no difference of sums near 1."""
    pool = models.pool(qr_weight=1e-4)
    posterior = pool.first.model.head.posterior
    with torch.no_grad():
        posterior.bias[-1] -= 14.0
    served = models.serve(Networks.trained(pool), tmp_path)
    columns = models.some_rows(pool.first)
    expected, got = reference.answer(served.networks, columns, served.layout), served(columns)
    rare = expected[metadata.BINS][:, -1]
    assert np.median(rare) < 1e-4
    np.testing.assert_allclose(got[metadata.BINS][:, -1], rare, rtol=1e-3, atol=1e-8)


def test_edges_must_be_knots(trained: TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"edges must be among the model's knots, 0, .*; \[1.1\] are not"):
        publish.export_model(Networks.trained(trained), "demo", tmp_path, ExportOptions(edges=(0.0, 1.1, 3.0)))


def test_half_precision(trained: TrainedModel, tmp_path: Path) -> None:
    version, report = publish.export_model(Networks.trained(trained), "half", tmp_path, ExportOptions(precision="fp16"))
    assert report.ok
    assert version == 1


@pytest.fixture
def ghostless(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ghostless:
    return Ghostless(monkeypatch, capsys, before=["export"])


def test_from_the_command_line_to_a_loaded_model(trained: TrainedModel, ghostless: Ghostless, tmp_path: Path) -> None:
    for checkpoint in trained.checkpoints:
        checkpoint.save(tmp_path / "run" / checkpoint.model_config.head)
    trained.save(tmp_path / "run")
    status, out, err = ghostless(tmp_path / "run", "--name", "mix", "--repository", tmp_path / "repo", "--json")
    assert status == 0, err
    assert json.loads(out)["ok"]
    loaded = load_model(repository.find(tmp_path / "repo", "mix").model_file(1), "mix", 1, (1, 4))
    answers = loaded.run(rows.fed(rows.plausible(trained.first.encoding, 8, 0)), loaded.outputs)
    assert np.isfinite(np.concatenate([values.ravel() for values in answers.values()])).all()


def test_a_pool_is_no_member_of_an_ensemble(trained: TrainedModel, ghostless: Ghostless, tmp_path: Path) -> None:
    for checkpoint in trained.checkpoints:
        checkpoint.save(tmp_path / "run" / checkpoint.model_config.head)
    trained.save(tmp_path / "run")
    for extra in ((tmp_path / "run",), ("--mc-dropout", 5)):
        status, _, err = ghostless(tmp_path / "run", *extra, "--name", "mix")
        assert status == 1
        assert "cannot be in an ensemble or use MC-dropout" in err
