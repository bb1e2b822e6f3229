"""Provenance of a file of figures: commit, versions, machine and date of the run."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ghostless.contract.cores import available_cores

PACKAGES = ("numpy", "onnxruntime", "grpcio", "protobuf", "prometheus-client", "torch", "onnx")
_CHECKOUT = Path(__file__).parents[1]


def describe_run(checkout: Path = _CHECKOUT) -> dict[str, Any]:
    return {
        "commit": commit_of(checkout),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": available_cores(),
        "load_average": round(os.getloadavg()[0], 2),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": installed_versions(),
    }


def installed_versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit_of(checkout: Path) -> str:
    """Short hash, with "+changes" appended if tracked files were modified; empty outside a repository."""
    try:
        return _git(checkout, "rev-parse", "--short", "HEAD") + (
            "+changes" if _git(checkout, "status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(checkout: Path, *words: str) -> str:
    command = ["git", "-C", str(checkout), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
