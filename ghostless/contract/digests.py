"""SHA-256 digests of all files of a version, in a file that `sha256sum --check SHA256SUMS` can also check.

Export writes it, and a server checks it before it loads the version, so a file that was damaged or replaced after its
verification is not served.
"""

import hashlib
import re
from pathlib import Path

from ghostless.contract.errors import InvalidModelError

DIGESTS_FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def write(directory: Path) -> None:
    """Write the digests of all files in `directory`, which must be complete."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != DIGESTS_FILE)
    lines = [f"{digest(file)}  {file.relative_to(directory).as_posix()}\n" for file in files]
    (directory / DIGESTS_FILE).write_text("".join(lines))


def verify(directory: Path) -> bool:
    """Check the digests; False if the version has none (older exports). Raises InvalidModelError if a file has
    changed."""
    recorded = read(directory)
    if recorded:
        unlisted = {path.name for path in directory.glob("model.onnx*")} - recorded.keys()
        if unlisted:
            raise InvalidModelError(f"{directory / min(unlisted)} is not listed in {DIGESTS_FILE}; {_REMEDY}")
    for name, expected in recorded.items():
        try:
            found = digest(directory / name)
        except OSError as error:
            raise InvalidModelError(
                f"{directory / name} is listed in {DIGESTS_FILE} and can't be read: {error.strerror}; {_REMEDY}"
            ) from error
        if found != expected:
            raise InvalidModelError(
                f"{directory / name} was changed or damaged after its export: its SHA-256 is {found}, {DIGESTS_FILE} "
                f"has {expected}; {_REMEDY}"
            )
    return bool(recorded)


def read(directory: Path) -> dict[str, str]:
    """Digest by file name, relative to `directory`; empty if the version has none."""
    file = directory / DIGESTS_FILE
    try:
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidModelError(f"{file} can't be read: {error.strerror}") from error
    recorded: dict[str, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or match[2].startswith("/") or ".." in Path(match[2]).parts:
            raise InvalidModelError(f"{file} is damaged: {line[:80]!r} is not a SHA-256 and a file name; {_REMEDY}")
        recorded[match[2]] = match[1]
    if not recorded:
        raise InvalidModelError(f"{file} is empty; {_REMEDY}")
    return recorded


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


_REMEDY = "export the version again or restore it from a backup"
