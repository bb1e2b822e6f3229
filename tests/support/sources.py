"""Files of the known sources: small ones in the original layout, and the real ones if they are available."""

import os
from pathlib import Path

import pytest

from learning.data.load import load
from learning.data.table import Table

# Read before GHOSTLESS_* is removed from the tests' environment.
REAL_DATA = os.environ.get("GHOSTLESS_DATA", "")


def table(spec: str) -> Table:
    loaded = load(spec)
    assert isinstance(loaded, Table)
    return loaded


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def real(path: str) -> Path:
    if not REAL_DATA or not (Path(REAL_DATA) / path).exists():
        pytest.skip(f"no real {path}; run `GHOSTLESS_DATA=FOLDER make test` with the folder that contains {path}")
    return Path(REAL_DATA) / path
