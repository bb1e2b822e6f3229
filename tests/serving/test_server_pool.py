"""A calibrated pool of two heads as it was exported, through the facade: embedded engine and real Triton."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from export import publish, verification
from export.graph import Networks
from export.options import ExportOptions
from ghostless.contract import metadata, repository
from ghostless.heads.calibration import Calibration
from ghostless.v1 import prediction_pb2 as pb
from learning.data.video import VIDEO_SCHEMA
from serving.engines.embedded import load_model
from tests.support import torch_models as models
from tests.support.running import Running, response_tensors, serving_repository
from tests.support.tritons import serving_triton

ROWS = 40


@pytest.fixture(scope="module")
def networks() -> Networks:
    return Networks.trained(replace(models.pool(VIDEO_SCHEMA), calibration=Calibration(1.0, models.MAP)))


@pytest.fixture(scope="module")
def root(networks: Networks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("RANDOM_ROWS", 500), ("DRAWS", 500)):
            patch.setattr(verification, name, value)
        publish.export_model(networks, "mix", folder, ExportOptions())
    return folder


def ask(running: Running, networks: Networks, levels: tuple[float, ...] = ()) -> dict[str, np.ndarray]:
    """The answer to 40 candidates for one known user, and beside it the graph's own."""
    encoding, random = networks.first.encoding, np.random.default_rng(0)
    columns = {
        "user_id": np.repeat(encoding.vocabularies["user_id"][3], ROWS),
        "video_id": random.choice(encoding.vocabularies["video_id"], ROWS),
        "duration_ms": random.uniform(0, 100, ROWS).astype(np.float32),
    }
    request = pb.PredictRequest(model="mix", quantile_levels=levels)
    request.context["user_id"].int64s.values.append(int(columns["user_id"][0]))
    request.candidates["video_id"].int64s.values.extend(columns["video_id"].tolist())
    request.candidates["duration_ms"].floats.values.extend(columns["duration_ms"].tolist())
    response = running.stub.Predict(request, timeout=20)
    assert running.root is not None
    model = load_model(repository.find(running.root, "mix").model_file(1), "mix", 1, (1,))
    answer = {f"got {name}": values for name, values in response_tensors(response).items()}
    graph = model.run(columns, model.outputs)
    return answer | {f"graph {name}": values for name, values in graph.items()}


def check(running: Running, networks: Networks) -> None:
    answer = ask(running, networks)
    for name in (metadata.MEAN, metadata.QUANTILES, metadata.BINS, metadata.ALEATORIC, metadata.EPISTEMIC):
        np.testing.assert_allclose(answer[f"got {name}"], answer[f"graph {name}"], rtol=1e-5, atol=1e-6)
    model = running.engine.resolve("mix", 0).metadata
    assert model.head == "pool"
    # All levels are read from one calibrated CDF, whether the graph returns them or not.
    columns = [model.levels.index(level) for level in (0.05, 0.95)]
    exported = ask(running, networks, (0.05, 0.95))["got quantiles"]
    np.testing.assert_array_equal(exported, answer["got quantiles"][:, columns])
    mixed = ask(running, networks, (0.05, 0.94, 0.95))["got quantiles"]
    np.testing.assert_array_equal(mixed[:, [0, 2]], exported)
    assert (np.diff(mixed, axis=1) >= 0.0).all()


def test_embedded(root: Path, networks: Networks) -> None:
    with serving_repository(root) as running:
        check(running, networks)


def test_triton(root: Path, networks: Networks) -> None:
    with serving_triton(root) as running:
        check(running, networks)
