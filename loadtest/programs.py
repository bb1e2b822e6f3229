"""System programs that measurements drive: on the PATH, or where `make tools` puts them."""

import shutil
from pathlib import Path

from loadtest.server_process import BenchError


def find_program(name: str) -> str:
    local = Path(".tools/bin") / name
    found = shutil.which(name) or (str(local.resolve()) if local.exists() else None)
    if found is None:
        raise BenchError(f"{name} is neither on PATH nor in .tools/bin; `make tools` fetches it")
    return found
