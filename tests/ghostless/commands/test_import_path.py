import os
import subprocess
import sys
from pathlib import Path

import pytest

from ghostless import Client
from tests.support.onnx_models import write_version
from tests.support.processes import ROOT, served

NAMESAKES = ("serving", "export", "cli", "learning", "loadtest")


@pytest.fixture
def foreign_folder(tmp_path: Path) -> Path:
    """A working folder with folders of its own that are called like our packages."""
    for name in NAMESAKES:
        package = tmp_path / "work" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError(f'{__file__} was imported')\n")
    return tmp_path / "work"


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONSAFEPATH", None)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_folder_would_be_imported_without_protection(foreign_folder: Path) -> None:
    done = python("-c", "import serving", folder=foreign_folder)
    assert "was imported" in done.stderr


@pytest.mark.parametrize("command", ["serve", "export", "train", "loadtest"])
def test_python_m_does_not_import_the_folder(foreign_folder: Path, command: str) -> None:
    done = python("-m", "ghostless", command, "--help", folder=foreign_folder)
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_processes_that_it_starts_do_not_import_the_folder(foreign_folder: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "from ghostless.commands.import_path import ignore_working_folder\n"
        "ignore_working_folder()\n"
        "subprocess.run([sys.executable, '-c', 'import loadtest; print(loadtest.__file__)'], check=True)\n"
    )
    done = python("-c", program, folder=foreign_folder)
    assert done.stdout.strip() == str(ROOT / "loadtest" / "__init__.py"), done.stderr


def test_workers_serve_from_the_folder(foreign_folder: Path, tmp_path: Path) -> None:
    write_version(tmp_path / "models", 1)
    with served(tmp_path / "models", "--workers", "2", folder=foreign_folder) as server:
        with Client(server.address) as client:
            answer = client.predict(
                context={"user_id": 7, "hour": 12.0}, candidates={"item_id": [1, 2], "duration": [8.0, 15.0]}
            )
        assert answer.rows == 2
        assert server.stop() == 0
