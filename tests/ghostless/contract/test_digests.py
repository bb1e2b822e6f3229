import shutil
import subprocess
from pathlib import Path

import pytest

from ghostless.contract import digests
from ghostless.contract.errors import InvalidModelError


@pytest.fixture
def version(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(bytes(range(256)) * 1000)
    (tmp_path / "report.json").write_text("{}")
    digests.write(tmp_path)
    return tmp_path


def test_what_was_written_is_verified_here_and_by_coreutils(version: Path) -> None:
    assert digests.verify(version)
    assert set(digests.read(version)) == {"model.onnx", "report.json"}
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=version, check=True)


def test_a_byte_that_changed_is_found(version: Path) -> None:
    with (version / "model.onnx").open("r+b") as file:
        file.seek(100_000)
        file.write(b"\0")
    with pytest.raises(InvalidModelError, match=r"model\.onnx was changed or damaged after its export: .*export"):
        digests.verify(version)


def test_a_file_that_is_gone_is_found(version: Path) -> None:
    (version / "report.json").unlink()
    with pytest.raises(InvalidModelError, match=r"report\.json is listed in SHA256SUMS and can't be read: No such"):
        digests.verify(version)


def test_an_older_version_has_no_digests_and_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("x")
    assert not digests.verify(tmp_path)


@pytest.mark.parametrize("text", ["", "what?\n", f"{'0' * 64}  ../../secret\n", f"{'0' * 64}  /etc/passwd\n", "\xff"])
def test_damaged_digests_are_no_reason_to_load_unchecked(tmp_path: Path, text: str) -> None:
    (tmp_path / digests.DIGESTS_FILE).write_text(text, encoding="latin-1")
    with pytest.raises(InvalidModelError, match=r"SHA256SUMS is (damaged|empty)"):
        digests.verify(tmp_path)
