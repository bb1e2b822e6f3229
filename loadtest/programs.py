"""System programs used by measurements: on the PATH, or in .tools/bin from `make tools`."""

import shutil
from pathlib import Path

from loadtest.server_process import BenchError


def find_program(name: str) -> str:
    local = Path(".tools/bin") / name
    found = shutil.which(name) or (str(local.resolve()) if local.exists() else None)
    if found is None:
        raise BenchError(f"{name} is neither on PATH nor in .tools/bin; `make tools` fetches it")
    return found
