import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ghostless.contract.errors import RepositoryError
from serving.models_cli import app
from tests.support.onnx_models import Recipe, write_version


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for version in (1, 2, 3):
        write_version(tmp_path, version, Recipe(seed=version))
    return tmp_path


def _run(root: Path, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--repository", str(root)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_list_promote_and_roll_back(root: Path) -> None:
    assert json.loads(_run(root, "list", "--json")) == [
        {"name": "demo", "in_service": 3, "versions": [1, 2, 3], "previous": [2, 1]}
    ]
    assert json.loads(_run(root, "promote", "demo", "1", "--json")) == {"name": "demo", "version": 1, "previous": [3]}
    assert "version 3 is in service" in _run(root, "rollback", "demo")
    assert "demo" in _run(root, "list")


def test_describe(root: Path) -> None:
    described = json.loads(_run(root, "describe", "demo", "--json"))
    assert described["version"] == 3
    assert described["in_service"] is True
    assert described["target"]["name"] == "watch_ratio"
    assert "mean" in described["outputs"]
    assert "feature user_id" in _run(root, "describe", "demo", "--version", "2")


def test_an_unknown_model_is_named(root: Path) -> None:
    with pytest.raises(RepositoryError, match="no model 'other'"):
        _run(root, "rollback", "other")
