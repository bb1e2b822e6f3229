"""Writes JSON files that other processes may read at the same time."""

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: dict[str, Any]) -> None:
    """Write the file so that a reader sees a complete file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".partial{os.getpid()}")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)
