"""A checkout whose server is measured: how to start it, and the versions of its packages."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from loadtest.provenance import PACKAGES, commit_of, describe_run, installed_versions
from loadtest.server_process import BenchError, Program

_THIS = Path(__file__).parents[2]
_VERSIONS = """\
import importlib.metadata, json, sys
found = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
print(json.dumps({name: found[name] for name in sys.argv[1:] if name in found}))
"""


@dataclass(frozen=True)
class Checkout:
    program: Program
    commit: str
    versions: dict[str, str]

    def describe(self) -> dict[str, object]:
        return {**describe_run(), "commit": self.commit, "versions": self.versions}


def this_checkout() -> Checkout:
    """The checkout that this process runs from."""
    program = Program([sys.executable, "-m", "ghostless"], _THIS, str(_THIS))
    return Checkout(program, commit_of(_THIS), installed_versions())


def other_checkout(folder: Path) -> Checkout:
    """A checkout with its own .venv/bin/ghostless; without one, this Python with its sources."""
    folder = folder.absolute()
    command = folder / ".venv/bin/ghostless"
    if command.exists():
        # An empty PYTHONPATH, so that it does not import this checkout: an editable install comes last on the path.
        return Checkout(Program([str(command)], folder, ""), commit_of(folder), _versions(folder))
    if not (folder / "ghostless" / "__main__.py").exists():
        raise BenchError(
            f"{folder} has neither .venv/bin/ghostless nor ghostless/__main__.py; run `make install` there first"
        )
    program = Program([sys.executable, "-m", "ghostless"], folder, str(folder))
    return Checkout(program, commit_of(folder), installed_versions())


def _versions(folder: Path) -> dict[str, str]:
    command = [str(folder / ".venv/bin/python"), "-c", _VERSIONS, *PACKAGES]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode != 0:
        raise BenchError(f"{command[0]} can't be run: {ended.stderr.strip()[-300:]}")
    found: dict[str, str] = json.loads(ended.stdout)
    return found
