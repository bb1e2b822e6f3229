"""Calibrated levels in the graph: what it returns covers what it says, and the file tells how."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from export import calibration, options, publish, reference, verification
from export.graph import Networks
from export.options import ExportOptions
from ghostless.contract import metadata
from ghostless.contract.metadata import ModelMetadata
from tests.support import torch_models as models

SHARES = (0.05, 0.1, 0.5, 0.9, 0.95)


@pytest.fixture(scope="module", params=["qr", "cr", "pool"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> models.ExportedGraph:
    if request.param == "pool":
        pool = models.pool()
        networks = Networks.trained(replace(pool, checkpoints=tuple(map(models.calibrated, pool.checkpoints))))
    else:
        networks = models.alone(models.calibrated(models.shaken(model_config=models.config(head=request.param))))
    return models.serve(networks, tmp_path_factory.mktemp("calibrated"), ExportOptions(levels=SHARES))


def test_the_graph_covers_the_calibration_rows_as_promised(served: models.ExportedGraph) -> None:
    """A network of random weights: its own 90% interval covers anything but 90%."""
    kept = served.networks.held_out
    assert kept is not None
    quantiles = served(dict(kept.columns))[metadata.QUANTILES]
    below = (kept.target[:, None] < quantiles).mean(0)
    inside = (kept.target[:, None] <= quantiles).mean(0)
    assert np.all(np.abs(below[:2] - [0.05, 0.1]) <= 3 / kept.rows)
    assert inside[2] >= 0.5 - 3 / kept.rows
    assert np.all(np.abs(inside[3:] - [0.9, 0.95]) <= 3 / kept.rows)
    plain = reference.answer(served.networks, kept.columns, replace(served.layout, conformal=None))
    own = plain[metadata.QUANTILES]
    covered = np.mean((own[:, 0] <= kept.target) & (kept.target <= own[:, -1]))
    assert abs(covered - 0.9) > 0.02


def test_the_graph_is_what_torch_computes(served: models.ExportedGraph) -> None:
    columns = models.some_rows(served.networks.first)
    expected, got = reference.answer(served.networks, columns, served.layout), served(columns)
    for name in served.layout.outputs:
        assert verification.error_against(expected, got, name, served.layout) <= 1e-4, name


def test_quantiles_near_a_crowded_end_are_that_end(served: models.ExportedGraph) -> None:
    quantiles = served(models.some_rows(served.networks.first))[metadata.QUANTILES]
    low, reach = 0.0, 0.03
    assert (quantiles == low).any()
    assert np.all(quantiles >= low)
    assert served.layout.conformal is not None
    assert served.layout.conformal.snap.low_reach == pytest.approx(reach)


def test_the_file_says_how(served: models.ExportedGraph) -> None:
    described = ModelMetadata.parse(served.loaded.properties, "model.onnx")
    conformal = described.calibration[metadata.CONFORMAL]
    assert conformal["method"] == "split-conformal"
    assert conformal["rows"] == 1500
    assert conformal["levels"] == pytest.approx(served.layout.asked, abs=1e-6)
    assert described.levels == SHARES


def test_verification_rejects_a_graph_that_covers_too_little(
    served: models.ExportedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANDOM_ROWS": 400, "BATCH_ROWS": 64, "ALONE_ROWS": 2, "DRAWS": 500}.items():
        monkeypatch.setattr(verification, name, value)
    title = "quantiles: coverage short of the level, calibration rows"
    report = verification.verify(served, served.networks, served.layout, "fp32")
    assert report.ok, report.failures()
    assert title in [check.name for check in report.checks]
    # The same graph, said to be calibrated for other levels.
    narrow = replace(served.layout, levels=served.layout.levels + 0.02)
    failed = [
        check.name for check in verification.verify(served, served.networks, narrow, "fp32").checks if not check.ok
    ]
    assert title in failed


def test_without_kept_rows_or_unwanted_levels_are_the_models_own(tmp_path: Path) -> None:
    checkpoint = models.shaken()
    plain = options.resolve(ExportOptions(), checkpoint)
    assert calibration.calibrate(models.alone(checkpoint), plain) is plain
    kept = models.alone(models.calibrated(checkpoint))
    assert calibration.calibrate(kept, replace(plain, outputs=(metadata.MEAN,))).conformal is None
    assert metadata.CONFORMAL not in publish.describe("demo", kept, plain).calibration


def test_an_ensembles_members_saw_each_others_rows() -> None:
    members = models.ensemble([0, 1])
    kept = Networks(tuple(map(models.calibrated, members.checkpoints)))
    assert kept.held_out is None
