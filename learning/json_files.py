"""JSON files that other processes may be reading."""

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: dict[str, Any]) -> None:
    """A reader sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".partial{os.getpid()}")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)
