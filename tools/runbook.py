"""Copy the runbook of docs/observability.md to the console's assets: `python tools/runbook.py`."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs" / "observability.md"
TARGET = ROOT / "serving" / "console" / "assets" / "runbook.json"
_SECTION = re.compile(r"^### (Ghostless\w+)\n\n(.*?)(?=\n\n### |\Z)", re.MULTILINE | re.DOTALL)


def runbook() -> str:
    """Paragraphs by alert, as JSON."""
    sections = {name: " ".join(text.split()) for name, text in _SECTION.findall(SOURCE.read_text())}
    return json.dumps(sections, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(runbook())
