"""The model repository on disk: NAME/VERSION/model.onnx, and which version of each model is in service.

    demo/config.pbtxt           for Triton; not read here
    demo/in_service.json        {"version": 3, "previous": [2, 1]}; absent: the highest version serves
    demo/3/model.onnx           with the other files of the export, such as its verification report
    demo/3/SHA256SUMS           digests of the version's files (ghostless.contract.digests)
    demo/.staging-x1y2/         a version being written; it is published by one rename

Everything that readers use appears by an atomic rename, so a server that polls never sees an incomplete version.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ghostless.contract import digests
from ghostless.contract.errors import RepositoryError

MODEL_FILE = "model.onnx"
POINTER_FILE = "in_service.json"
_STAGING_PREFIX = ".staging-"


@dataclass(frozen=True)
class Pointer:
    """The version in service; `previous` has the earlier ones, latest first, for rolling back."""

    version: int
    previous: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelEntry:
    """One model on disk, with its versions in ascending order."""

    name: str
    path: Path
    versions: tuple[int, ...]
    pointer: Pointer | None

    @property
    def in_service(self) -> int:
        return self.pointer.version if self.pointer else self.versions[-1]

    def model_file(self, version: int) -> Path:
        return self.path / str(version) / MODEL_FILE


def scan(root: Path) -> dict[str, ModelEntry]:
    """All models of the repository that have at least one version."""
    if not root.is_dir():
        raise RepositoryError(
            f"model repository {root} is not a directory; create it with `ghostless export` or set --repository"
        )
    entries = (_entry(path) for path in sorted(root.iterdir()) if path.is_dir() and path.name[0] != ".")
    return {entry.name: entry for entry in entries if entry.versions}


def find(root: Path, name: str) -> ModelEntry:
    entries = scan(root)
    if name not in entries:
        raise RepositoryError(f"no model {name!r} in {root}; available: {', '.join(entries) or 'none'}")
    return entries[name]


@contextmanager
def staging(root: Path, name: str) -> Iterator[Path]:
    """A directory for a new version, on the repository's file system. If it is not published, it is removed together
    with the directories that were created for it."""
    _check_name(name)
    model_path = root / name
    try:
        made = [path for path in (model_path, root) if not path.exists()]
        model_path.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=model_path))
    except OSError as error:
        raise RepositoryError(f"can't write a new version to {model_path}: {error.strerror}") from error
    # mkdtemp makes it private, but a server that runs as another user must be able to read the published version.
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):  # not empty: published, or another export is running
            for path in made:
                path.rmdir()


def publish(root: Path, name: str, files_dir: Path, promote: bool = True) -> int:
    """Publish a finished staging directory as the next version, by one rename; returns its number.

    With `promote` False, the version can be requested by number, but the current version stays in service.
    """
    _check_name(name)
    if not (files_dir / MODEL_FILE).is_file():
        raise RepositoryError(f"{files_dir} has no {MODEL_FILE}, so it can't be published as a version of {name!r}")
    digests.write(files_dir)
    for file in files_dir.rglob("*"):
        if file.is_file():
            _flush(file)
    model_path = root / name
    before = _entry(model_path)
    if not promote and before.versions and before.pointer is None:
        # Without a pointer the highest version is in service, and that will be the new one.
        _write_pointer(model_path, Pointer(before.in_service))
    version = before.versions[-1] + 1 if before.versions else 1
    while True:
        try:
            files_dir.rename(model_path / str(version))
            break
        except OSError as error:
            if not (model_path / str(version)).exists():
                raise RepositoryError(f"can't publish {files_dir} as {model_path / str(version)}: {error}") from error
            version += 1
    if promote and before.pointer is not None:
        _point(model_path, before.pointer, version)
    return version


def promote(root: Path, name: str, version: int) -> Pointer:
    """Put `version` in service."""
    entry = find(root, name)
    check_version(entry, version)
    return _point(entry.path, entry.pointer or Pointer(entry.in_service), version)


def rollback(root: Path, name: str) -> Pointer:
    """Put the previous version back in service."""
    entry = find(root, name)
    earlier = earlier_versions(entry)
    if not earlier:
        raise RepositoryError(f"model {name!r} has no version before {entry.in_service} to roll back to")
    pointer = Pointer(earlier[0], tuple(earlier[1:]))
    _write_pointer(entry.path, pointer)
    return pointer


def earlier_versions(entry: ModelEntry) -> list[int]:
    """Those to roll back to, the next one first."""
    if entry.pointer is not None:
        return [version for version in entry.pointer.previous if version in entry.versions]
    return list(reversed(entry.versions[:-1]))


def check_version(entry: ModelEntry, version: int) -> None:
    if version not in entry.versions:
        known = ", ".join(map(str, entry.versions))
        raise RepositoryError(f"model {entry.name!r} has no version {version}; available: {known}")


def _point(model_path: Path, before: Pointer, version: int) -> Pointer:
    if version == before.version:
        pointer = before
    else:
        pointer = Pointer(version, (before.version, *(v for v in before.previous if v != version)))
    _write_pointer(model_path, pointer)
    return pointer


def _entry(path: Path) -> ModelEntry:
    versions = sorted(int(child.name) for child in path.iterdir() if child.name.isdecimal() and int(child.name) > 0)
    return ModelEntry(path.name, path, tuple(versions), _read_pointer(path / POINTER_FILE))


def _read_pointer(file: Path) -> Pointer | None:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
        return Pointer(int(content["version"]), tuple(int(v) for v in content.get("previous", ())))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RepositoryError(
            f'{file} is not {{"version": N, "previous": [...]}}: {error}; write it with `ghostless models promote`'
        ) from error


def _write_pointer(model_path: Path, pointer: Pointer) -> None:
    text = json.dumps({"version": pointer.version, "previous": list(pointer.previous)}) + "\n"
    file = model_path / POINTER_FILE
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{POINTER_FILE}-", dir=model_path)
        with os.fdopen(handle, "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise RepositoryError(
            f"can't write {file}: {error.strerror}; the version in service is unchanged. Run this where the repository "
            "can be written"
        ) from error


def _flush(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_name(name: str) -> None:
    if not name or name.startswith(".") or "/" in name or name != name.strip():
        raise RepositoryError(f"{name!r} is not a valid model name; use letters, digits, - and _, no leading dot, no /")
