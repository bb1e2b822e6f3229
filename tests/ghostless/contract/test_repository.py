import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ghostless.contract import repository
from ghostless.contract.errors import RepositoryError


def _publish(root: Path, name: str = "demo", promote: bool = True, text: str = "x") -> int:
    with repository.staging(root, name) as directory:
        (directory / "model.onnx").write_text(text)
        return repository.publish(root, name, directory, promote=promote)


def test_versions_are_numbered_and_the_latest_serves(tmp_path: Path) -> None:
    assert [_publish(tmp_path, text=str(i)) for i in (1, 2, 3)] == [1, 2, 3]
    entry = repository.find(tmp_path, "demo")
    assert entry.versions == (1, 2, 3)
    assert entry.in_service == 3
    assert entry.model_file(2).read_text() == "2"
    assert not list((tmp_path / "demo").glob(".staging*"))


def test_unpublished_staging_leaves_nothing(tmp_path: Path) -> None:
    with repository.staging(tmp_path, "demo") as directory:
        (directory / "half").write_text("x")
        assert repository.scan(tmp_path) == {}
    assert not directory.exists()


def test_publishing_without_promotion_keeps_what_serves(tmp_path: Path) -> None:
    _publish(tmp_path)
    assert _publish(tmp_path, promote=False) == 2
    assert repository.find(tmp_path, "demo").in_service == 1
    assert _publish(tmp_path) == 3
    assert repository.find(tmp_path, "demo").in_service == 3


def test_promote_and_roll_back(tmp_path: Path) -> None:
    for _ in range(3):
        _publish(tmp_path)
    repository.promote(tmp_path, "demo", 1)
    assert repository.find(tmp_path, "demo").in_service == 1
    assert json.loads((tmp_path / "demo" / "in_service.json").read_text()) == {"version": 1, "previous": [3]}
    assert repository.rollback(tmp_path, "demo").version == 3
    with pytest.raises(RepositoryError, match="no version before 3"):
        repository.rollback(tmp_path, "demo")


def test_roll_back_without_a_pointer_goes_to_the_version_before(tmp_path: Path) -> None:
    _publish(tmp_path)
    _publish(tmp_path)
    assert repository.rollback(tmp_path, "demo").version == 1
    assert repository.find(tmp_path, "demo").in_service == 1


def test_a_repository_that_can_not_be_written_is_one_clear_error() -> None:
    # Not tmp_path, whose parents only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _publish(root)
        _publish(root)
        for path in (root, root / "demo"):
            path.chmod(0o555)
        with _unprivileged():
            with pytest.raises(RepositoryError, match=r"can't write .*in_service\.json: Permission denied.*unchanged"):
                repository.promote(root, "demo", 1)
            with pytest.raises(RepositoryError, match=r"can't write .*Permission denied"):
                repository.rollback(root, "demo")
            with pytest.raises(RepositoryError, match=r"can't write a new version to .*Permission denied"):
                _publish(root)
        assert repository.find(root, "demo").in_service == 2
        (root / "demo").chmod(0o755)


def test_a_full_disk_leaves_the_pointer_as_it_was_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _publish(tmp_path)
    _publish(tmp_path)
    repository.promote(tmp_path, "demo", 1)
    before = sorted((tmp_path / "demo").iterdir())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RepositoryError, match="No space left on device"):
        repository.promote(tmp_path, "demo", 2)
    assert sorted((tmp_path / "demo").iterdir()) == before
    assert repository.find(tmp_path, "demo").in_service == 1


@contextmanager
def _unprivileged() -> Iterator[None]:
    """Root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", " padded"])
def test_names_that_could_leave_the_repository_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RepositoryError, match="not a valid model name"), repository.staging(tmp_path, name):
        pass


def test_errors_name_what_is_there(tmp_path: Path) -> None:
    _publish(tmp_path)
    with pytest.raises(RepositoryError, match=r"no model 'other'.*available: demo"):
        repository.find(tmp_path, "other")
    with pytest.raises(RepositoryError, match=r"no version 9; available: 1"):
        repository.promote(tmp_path, "demo", 9)
    with pytest.raises(RepositoryError, match="not a directory"):
        repository.scan(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RepositoryError, match=r"has no model\.onnx"):
        repository.publish(tmp_path, "demo", tmp_path / "empty")
    (tmp_path / "demo" / "in_service.json").write_text("[]")
    with pytest.raises(RepositoryError, match=r"in_service\.json is not"):
        repository.scan(tmp_path)
