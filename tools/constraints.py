"""Write the versions that are installed here as a constraints file: constraints.py OUTPUT."""

import sys
from importlib.metadata import distributions
from pathlib import Path

HEADER = """\
# The versions that `make install` takes and CI tests, so that two fresh machines get the same; all are on PyPI.
# To renew: make upgrade. torch brings exact pins of its own for what its CUDA build needs.
"""
# torch names the exact versions of these itself, and a CPU build has none of them.
LEFT_OUT = ("ghostless", "pip", "nvidia-", "cuda-", "triton")


def constraints() -> str:
    # A local version, such as torch's +cpu, is on no index that everybody has.
    pins = {found.metadata["Name"]: found.version.partition("+")[0] for found in distributions()}
    kept = sorted((name for name in pins if not _left_out(name.lower())), key=str.lower)
    return HEADER + "".join(f"{name}=={pins[name]}\n" for name in kept)


def _left_out(name: str) -> bool:
    return any(name == word or (name.startswith(word) and word.endswith("-")) for word in LEFT_OUT) or name.startswith(
        "ghostless"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(constraints())
