"""Files of earlier commits, unpacked."""

import tarfile
from pathlib import Path

import pytest

STORED = Path(__file__).parent / "fd7b8c1"
BEFORE_EFFECTS = Path(__file__).parent / "da77823"


@pytest.fixture(scope="session")
def old_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that fd7b8c1 exported: demo (CR, calibrated), quantiles (QR) and pooled (both)."""
    return _unpacked(STORED, "repository", tmp_path_factory)


@pytest.fixture(scope="session")
def old_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each head that fd7b8c1 trained, `cr` and `qr`, and a pool of both around them."""
    return _unpacked(STORED, "checkpoints", tmp_path_factory)


@pytest.fixture(scope="session")
def format_2_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each head that da77823 trained, `cr` and `qr`."""
    return _unpacked(BEFORE_EFFECTS, "checkpoints", tmp_path_factory)


@pytest.fixture(scope="session")
def format_2_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs as da77823 exported them, `cr` and `qr`."""
    return _unpacked(BEFORE_EFFECTS, "repository", tmp_path_factory)


@pytest.fixture(scope="session")
def old_answers() -> dict[str, bytes]:
    """MODEL/CASE.request and MODEL/CASE.response of fd7b8c1's server on its repository, and machine.json."""
    with tarfile.open(STORED / "answers.tar.xz") as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in members.items() if file is not None}


def _unpacked(stored: Path, name: str, factory: pytest.TempPathFactory) -> Path:
    folder = factory.mktemp(stored.name)
    with tarfile.open(stored / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name
