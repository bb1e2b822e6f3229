"""Number of cores that this process may use: the scheduler's affinity, limited by the cgroup's CPU quota."""

import math
import os
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")


def available_cores(cgroup_root: Path = _CGROUP_ROOT) -> int:
    """Number of available cores, at least 1. A fractional quota is rounded up: 1.5 CPUs keep two threads partly
    busy."""
    affinity = len(os.sched_getaffinity(0))
    quotas = [q for q in (_quota_v2(cgroup_root), _quota_v1(cgroup_root)) if q is not None]
    return max(1, min([affinity, *(math.ceil(q) for q in quotas)]))


def _quota_v2(root: Path) -> float | None:
    """cpu.max contains "QUOTA PERIOD" in microseconds, or "max PERIOD"."""
    words = _words(root / "cpu.max")
    if len(words) != 2 or words[0] == "max":
        return None
    return int(words[0]) / int(words[1])


def _quota_v1(root: Path) -> float | None:
    """cpu.cfs_quota_us is -1 if there is no limit."""
    for folder in ("cpu", "cpu,cpuacct"):
        quota = _words(root / folder / "cpu.cfs_quota_us")
        period = _words(root / folder / "cpu.cfs_period_us")
        if quota and period and int(quota[0]) > 0:
            return int(quota[0]) / int(period[0])
    return None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
