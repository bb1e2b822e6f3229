"""Write the installed versions to a constraints file: constraints.py OUTPUT."""

import sys
from importlib.metadata import distributions
from pathlib import Path

HEADER = """\
# The versions that `make install` uses and CI tests, so that two new machines get the same; all are on PyPI.
# Update them with `make upgrade`. torch itself pins the packages that its CUDA build needs.
"""
# torch pins the exact versions of its CUDA packages itself, and a CPU build has none of them.
LEFT_OUT = ("ghostless", "pip", "nvidia-", "cuda-", "triton")


def constraints() -> str:
    # A local version, such as torch's +cpu, is not on PyPI.
    pins = {found.metadata["Name"]: found.version.partition("+")[0] for found in distributions()}
    kept = sorted((name for name in pins if not _left_out(name.lower())), key=str.lower)
    return HEADER + "".join(f"{name}=={pins[name]}\n" for name in kept)


def _left_out(name: str) -> bool:
    return any(name == word or (name.startswith(word) and word.endswith("-")) for word in LEFT_OUT) or name.startswith(
        "ghostless"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(constraints())
