"""The models that a bench serves.

One from the repository, or the demo, which is trained if a new clone has none; and the stored demo of fd7b8c1.
"""

import subprocess
import sys
import tarfile
from pathlib import Path

from rich.console import Console

from ghostless.contract.repository import scan
from loadtest.server_process import BenchError
from loadtest.workload import ServedModel, find_model

DEFAULT_REPOSITORY = Path("model_repository")
_RUN = Path("runs/demo")
_NAME = "demo"
# What fd7b8c1 exported (the README beside it says how).
_STORED = Path(__file__).parents[1] / "tests" / "upgrade" / "fd7b8c1" / "repository.tar.xz"


def find_or_make_model(repository: Path, name: str, console: Console) -> ServedModel:
    """Like `find_model`. If the default repository is empty, the demo of `make serve` is trained and exported first.
    Other repositories are not changed; an error says what is missing."""
    if repository == DEFAULT_REPOSITORY and not name and not scan(repository):
        console.print(f"no model in {repository}: training and exporting the demo, as `make serve` does")
        _run("train", "--data", "synthetic", "--head", "cr", "--out", str(_RUN), "--skip-existing")
        _run("export", str(_RUN), "--name", _NAME, "--repository", str(repository))
    return find_model(repository, name)


def stored_repository(root: Path) -> Path:
    """The repository of fd7b8c1, unpacked below `root`; its `demo` was trained on 3,000 rows."""
    with tarfile.open(_STORED) as archive:
        archive.extractall(root / "fd7b8c1", filter="data")
    return root / "fd7b8c1" / "repository"


def _run(*words: str) -> None:
    # In a separate process, so that benches of serving do not import torch.
    ended = subprocess.run([sys.executable, "-m", "ghostless", *words], check=False)
    if ended.returncode != 0:
        raise BenchError(f"`ghostless {' '.join(words)}` ended with status {ended.returncode}")
