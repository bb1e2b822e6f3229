"""A model version is loaded in a child process first, within bounds of memory and time.

A file that takes more memory than there is, or whose run never ends, ends the child and not the server. The child costs
0.2 s and what the version takes to load; one worker tries for all of its server.
"""

import fcntl
import hashlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ghostless.contract.errors import InvalidModelError
from serving.engines.registry import signature

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_EXIT_INVALID = 3
# The kernel kills the process with the highest score first.
_OOM_SCORE = "1000"


@dataclass(frozen=True)
class TrialBounds:
    """What a version may take until it has loaded and warmed up, besides what the process takes without it."""

    memory_bytes: int
    seconds: float = 300.0


class Trials:
    """`directory` is shared by the workers of a server, which find each other's results there."""

    def __init__(self, directory: Path, bounds: TrialBounds, warm_up_rows: Sequence[int], providers: str) -> None:
        self._directory = directory
        self._bounds = bounds
        self._rows = max(warm_up_rows)
        self._providers = providers

    def check(self, file: Path, name: str, version: int) -> None:
        """InvalidModelError if the version can't be loaded within the bounds."""
        self._check_size(file)
        key = hashlib.sha256(repr((str(file), signature(file.parent))).encode()).hexdigest()
        result = self._directory / f"trial-{key}"
        with self._only_one():
            if result.exists():
                why = result.read_text()
            else:
                why = self._try(file, name, version)
                with suppress(OSError):  # the disk is full: others try it themselves
                    result.write_text(why)
        if why:
            raise InvalidModelError(f"{file}: {why}")

    def _check_size(self, file: Path) -> None:
        with suppress(OSError):  # one that is not there is for the trial to report
            size = sum(each.stat().st_size for each in file.parent.iterdir())
            if size > self._bounds.memory_bytes:
                raise InvalidModelError(
                    f"{file}: the version's files have {size / 1e6:.0f} MB, and it may take "
                    f"{self._bounds.memory_bytes / 1e6:.0f} MB of memory; allow more with --max-model-mb"
                )

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _try(self, file: Path, name: str, version: int) -> str:
        """Why it can't be served; empty if it can."""
        words = (file, name, version, self._rows, self._providers, self._bounds.memory_bytes)
        command = [sys.executable, "-P", "-m", __name__, *map(str, words)]
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=self._bounds.seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return f"it did not load and warm up within {self._bounds.seconds:g} s"
        if ended.returncode == 0:
            return ""
        if ended.returncode == _EXIT_INVALID:
            return ended.stdout.decode(errors="replace").strip()
        if ended.returncode < 0:
            ending = signal.Signals(-ended.returncode).name
            return f"loading it ended the trial process with {ending}; it may take more memory than there is"
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"loading it failed in the trial process: {''.join(last)}"


def memory_bound_bytes(max_model_mb: float) -> int:
    """What one version may take; 0 MB stands for half of the memory that this machine or container has."""
    if max_model_mb:
        return int(max_model_mb * 1024 * 1024)
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max", or another version of cgroups
            sizes.append(int(Path(limit).read_text()))
    return min(sizes) // 2


def _load(file: Path, name: str, version: int, rows: int, providers: str, memory_bytes: int) -> int:
    """In the child."""
    from serving.engines.embedded import CPU, available_providers, choose_providers, load_model

    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if choose_providers(providers, available_providers())[0] == CPU:  # a GPU's driver reserves far more than it takes
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory_bytes, resource.RLIM_INFINITY))
    try:
        load_model(file, name, version, (1, rows), providers)
    except InvalidModelError as error:
        hint = "; allow it more memory with --max-model-mb" if "alloc" in str(error) else ""
        print(str(error).removeprefix(f"{file}: ") + hint)
        return _EXIT_INVALID
    return 0


if __name__ == "__main__":
    path, model, number, batch, wanted, memory = sys.argv[1:]
    sys.exit(_load(Path(path), model, int(number), int(batch), wanted, int(memory)))
