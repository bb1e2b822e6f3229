"""A bench on a fresh clone makes its own model; elsewhere it leaves the repository alone."""

import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from loadtest.server_process import BenchError
from tests.support import onnx_models


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would have been run; "export" leaves a small model."""
    monkeypatch.chdir(tmp_path)
    DEFAULT_REPOSITORY.mkdir()
    run: list[list[str]] = []

    def pretend(command: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        run.append(command)
        if "export" in command:
            onnx_models.write_version(DEFAULT_REPOSITORY, 1)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", pretend)
    return run


def test_an_empty_default_repository_gets_the_demo(commands: list[list[str]]) -> None:
    assert find_or_make_model(DEFAULT_REPOSITORY, "", Console()).name == "demo"
    assert [command[3] for command in commands] == ["train", "export"]


def test_a_model_that_is_there_is_taken(commands: list[list[str]]) -> None:
    onnx_models.write_version(DEFAULT_REPOSITORY, 1, name="mine")
    assert find_or_make_model(DEFAULT_REPOSITORY, "", Console()).name == "mine"
    assert commands == []


def test_other_repositories_and_names_are_left_alone(commands: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for repository, name in ((tmp_path / "other", ""), (DEFAULT_REPOSITORY, "ranker")):
        with pytest.raises(BenchError, match="make serve"):
            find_or_make_model(repository, name, Console())
    assert commands == []


def test_a_failed_training_is_reported(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    failed: subprocess.CompletedProcess[bytes] = subprocess.CompletedProcess([], 3)
    monkeypatch.setattr(subprocess, "run", lambda command, check: failed)
    with pytest.raises(BenchError, match=r"ghostless train .*status 3"):
        find_or_make_model(DEFAULT_REPOSITORY, "", Console())
