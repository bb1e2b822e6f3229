"""What processes use, against processes whose use is known."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from loadtest import resources
from loadtest.compare.cores import on_cores, split_cores
from loadtest.errors import PlanError
from tests.support.waiting import eventually

# A child that burns half a second of CPU time and holds 64 MB, below a parent that does nothing.
_BURN = """
import time
held = bytearray(64_000_000)
while time.process_time() < 0.5: pass
print('done', flush=True)
input()
"""
_PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {_BURN!r}])"


def test_a_whole_tree_is_counted() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "done\n"
    try:
        # The kernel counts in ticks of 10 ms.
        assert 0.45 <= resources.cpu_seconds([parent.pid]) < 1.5
        assert 64 < resources.memory_mb([parent.pid]) < 64 + 60
    finally:
        parent.communicate("\n")
    assert resources.cpu_seconds([parent.pid]) == 0.0


def test_suspended_processes_use_no_cpu_and_go_on_afterwards() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        eventually(lambda: resources.cpu_seconds([busy.pid]) >= 0.05, "a process at work")
        with resources.suspended([busy.pid]):
            eventually(lambda: psutil.Process(busy.pid).status() == psutil.STATUS_STOPPED, "a stopped process")
            before = resources.cpu_seconds([busy.pid])
            time.sleep(0.3)  # what a process that is not suspended would use
            assert resources.cpu_seconds([busy.pid]) == before
        eventually(lambda: resources.cpu_seconds([busy.pid]) > before, "a process at work again")
    finally:
        busy.kill()
        busy.wait()


def test_started_processes_stay_on_their_cores() -> None:
    before = os.sched_getaffinity(0)
    one = frozenset(sorted(before)[:1])
    with on_cores(one):
        told = subprocess.check_output([sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"])
    assert told.decode().strip() == str(sorted(one))
    assert os.sched_getaffinity(0) == before


def test_server_and_generator_have_cores_of_their_own() -> None:
    available = os.sched_getaffinity(0)
    if len(available) == 1:
        assert split_cores().shared
        return
    split = split_cores()
    assert not split.shared
    assert split.server | split.generator == available
    with pytest.raises(PlanError, match="the load generator needs at least one"):
        split_cores(len(available))
