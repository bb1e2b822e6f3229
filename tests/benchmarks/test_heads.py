"""`ghostless bench heads` on a small made-up matrix: every figure is measured, and mistakes are one line."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ghostless.commands import main as entry

pytestmark = pytest.mark.usefixtures("few_rows")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The layout that the real data has, with 4,000 views in it."""
    for name in ("kuairand_pure", "kuairec_sample", "ncr_uber"):
        (tmp_path / name).mkdir()
    (tmp_path / "ncr_uber" / "rides.parquet").touch()
    random = np.random.default_rng(0)
    users, videos = random.integers(0, 50, 4000), random.integers(0, 40, 4000)
    ratio = np.clip(random.choice([0.0, 0.3, 1.0], 4000) + random.exponential(0.2, 4000) * (users % 3), 0, 3)
    np.savetxt(tmp_path / "kuairec_sample" / "random.txt", np.stack([users, videos, ratio], 1), "%d,%d,%.4f")
    return tmp_path


def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    monkeypatch.delenv("GHOSTLESS_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["ghostless", "bench", "heads", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_every_figure_is_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = folder / "figures.json"
    status, err = bench(monkeypatch, capsys, "--data", folder, "--only", "kuairec", "--quick", "--json", written)
    figures = json.loads(written.read_text())["figures"]
    assert status == (0 if all(figure["ok"] for figure in figures) else 1), err
    names = {figure["name"]: figure["value"] for figure in figures}
    covered = [value for name, value in names.items() if "90% interval" in name]
    assert len(covered) == 3
    # 320 calibration rows and 800 test rows: a standard deviation of 0.02.
    assert covered == pytest.approx([0.9] * 3, abs=0.08)
    ratio = names["kuairec: NLL of auto / NLL of the better head, mean of 1 seeds"]
    # One of the two networks that it is compared with, or their pool.
    assert 0.5 < ratio < 2.0


def test_a_users_mistake_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, err = bench(monkeypatch, capsys, "--data", folder, "--only", "wechat")
    assert status == 1
    assert "expected one of kuairand, kuairec, uber" in err


def test_without_real_data_all_of_it_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "figures.json"
    status, err = bench(monkeypatch, capsys, "--json", written)
    assert status == 0, err
    content = json.loads(written.read_text())
    assert content["figures"] == []
    assert "GHOSTLESS_DATA" in content["skipped"][0]["reason"]
