"""The machine and versions of a measurement, so that it can be judged and repeated."""

import os
import platform
from importlib import metadata
from pathlib import Path

import psutil

_PACKAGES = ("ghostless", "onnxruntime", "grpcio", "numpy", "tritonclient")


def describe_environment() -> dict[str, str]:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    return {
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "packages": versions,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
