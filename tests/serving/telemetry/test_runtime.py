"""The server's own folder: gone when it stops, and when the next one starts if it was killed."""

import os
import tempfile
from pathlib import Path

import pytest

from serving.config import ServeConfig
from serving.telemetry.runtime import runtime
from tests.support.onnx_models import write_version
from tests.support.processes import served

CONFIG = ServeConfig.model_validate({"host": "127.0.0.1", "port": 0, "workers": 1})


def folders(parent: Path) -> list[Path]:
    return list(parent.glob("ghostless-*"))


def test_folders_of_killed_servers_are_removed_and_those_in_use_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_version(tmp_path / "models", 1)
    shared = tmp_path / "temporary"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    foreign = shared / "ghostless-notes"
    foreign.mkdir()
    with served(tmp_path / "models", environment={"TMPDIR": str(shared)}) as server:
        (used,) = set(folders(shared)) - {foreign}
        with runtime(CONFIG) as own:
            assert set(folders(shared)) == {foreign, used, own.directory}
        assert set(folders(shared)) == {foreign, used}
        server.process.kill()
        server.process.wait()
        assert used.exists(), "it had no chance to"
        with runtime(CONFIG) as own:
            assert set(folders(shared)) == {foreign, own.directory}
    assert os.listdir(foreign) == []
