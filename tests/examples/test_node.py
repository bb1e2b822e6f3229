"""examples/node against the real server, with two workers."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ghostless.client import Client, Ucb
from ghostless.contract.metadata import FeatureSpec
from tests.support.onnx_models import Recipe, write_version
from tests.support.processes import ROOT, served

EXAMPLE = ROOT / "examples" / "node"
# The features of the demo that `make serve` trains, which the example asks for.
DEMO = Recipe(
    features=(
        FeatureSpec("user_id", "int64", "context", vocabulary=50),
        FeatureSpec("video_id", "int64", "candidate", vocabulary=2000),
        FeatureSpec("duration_ms", "float32", "candidate"),
    )
)


@pytest.fixture
def node() -> str:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not on PATH; install Node 18 or later to run examples/node")
    if not (EXAMPLE / "node_modules").is_dir():
        pytest.skip("the example's packages are missing: make examples")
    return program


def test_the_example_gets_what_the_python_client_gets(node: str, tmp_path: Path) -> None:
    write_version(tmp_path, 1, DEMO)
    with served(tmp_path, "--workers", "2") as server:
        run = subprocess.run(
            [node, "predict.js", server.address], cwd=EXAMPLE, capture_output=True, text=True, timeout=60, check=False
        )
        with Client(server.address, timeout_s=10.0) as client:
            expected = client.predict(
                context={"user_id": 7},
                candidates={"video_id": [11, 42, 1234], "duration_ms": [8000.0, 30000.0, 95000.0]},
                quantile_levels=(0.1, 0.5, 0.9),
                scoring=Ucb(1.0),
                top_k=2,
            )
    assert run.returncode == 0, run.stderr
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == 2, "one from each worker"
    assert expected.mean is not None
    assert expected.quantiles is not None
    assert expected.ranking is not None
    for answer in answers:
        assert (answer["model"], answer["version"], answer["request_id"]) == ("demo", "1", "node-example")
        np.testing.assert_allclose(answer["mean"], expected.mean, rtol=1e-6)
        np.testing.assert_allclose(answer["quantiles"]["values"], expected.quantiles.ravel(), rtol=1e-6)
        assert answer["ranking"] == expected.ranking.tolist()
