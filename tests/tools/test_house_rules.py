"""The checks for private names and sizes find what they are there for."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.processes import ROOT
from tools.house_rules import broken_rules


def _found(tmp_path: Path, text: str, package: str = "serving") -> list[str]:
    folder = tmp_path / package
    folder.mkdir(exist_ok=True)
    (folder / "module.py").write_text(text)
    return list(broken_rules(tmp_path))


def test_private_imports_are_found(tmp_path: Path) -> None:
    assert _found(tmp_path, "from grpc._cython import cygrpc\n") == [
        "serving/module.py:1: grpc._cython.cygrpc is private"
    ]
    assert _found(tmp_path, "import os\nimport grpc._channel\n") == ["serving/module.py:2: grpc._channel is private"]
    assert _found(tmp_path, "from grpc import _channel\n", "loadtest")
    assert _found(tmp_path, "value = getattr(object(), '_file', None)\n")


def test_dunder_names_are_public(tmp_path: Path) -> None:
    assert not _found(tmp_path, "from __future__ import annotations\nvalue = getattr(int, '__name__')\n")


def test_long_files_and_functions_of_the_server_are_found(tmp_path: Path) -> None:
    function = "def long() -> None:\n" + "    pass\n" * 60
    assert _found(tmp_path, function) == ["serving/module.py:1: long has 61 lines; a function has at most 60"]
    assert _found(tmp_path, "value = 1\n" * 301) == ["serving/module.py:1: 301 lines; a file has at most 300"]


def test_only_the_server_is_measured(tmp_path: Path) -> None:
    assert not _found(tmp_path, "value = 1\n" * 301, "learning")


def test_private_attributes_of_instances_are_found(tmp_path: Path) -> None:
    """By basedpyright, with this project's settings."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["basedpyright"]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**settings, "include": ["."], "exclude": []}))
    (tmp_path / "module.py").write_text(
        "import prometheus_client\n"
        "made = prometheus_client.Histogram('values', 'Some.')\n"
        "print(made.collect, made._upper_bounds)\n"
    )
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert ended.stdout.count("reportPrivateUsage") == 1
    assert '"_upper_bounds" is' in ended.stdout
