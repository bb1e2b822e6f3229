"""A repository with one small model, for tests that start a real server."""

from pathlib import Path

import pytest

from loadtest.workload import ServedModel, find_model
from tests.support import onnx_models


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    onnx_models.write_version(root, 1)
    return root


@pytest.fixture(scope="module")
def model(repository: Path) -> ServedModel:
    return find_model(repository, "demo")
