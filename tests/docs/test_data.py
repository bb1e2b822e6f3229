"""The example of docs/data.md does what the page says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "data.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    code = [text for language, text in blocks if language == "python"]
    shown = [text for language, text in blocks if language == "text"]
    files = {language: text for language, text in blocks if language in ("csv", "toml")}
    (tmp_path / "rides.csv").write_text(files["csv"])
    (tmp_path / "rides.toml").write_text(files["toml"])

    def run(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run(code[0]).stdout == shown[0]
    # The last block writes the same rows as Parquet: streamed, they are the same.
    streamed = run(code[1] + code[0].replace("rides.csv", "rides.parquet"))
    assert streamed.stdout == shown[0], streamed.stderr
    (tmp_path / "rides.csv").write_text(files["csv"].replace("carl,7", "carl,north"))
    assert shown[1].strip() in run(code[0]).stderr
