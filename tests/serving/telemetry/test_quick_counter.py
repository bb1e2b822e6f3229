"""The counter on the hot path says what prometheus_client's own would, here and to the process that is scraped."""

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter

from serving.telemetry.quick_counter import QuickCounter

# prometheus_client decides at its first import where values live; hence a process of its own.
_SHARED = """
import threading
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.multiprocess import MultiProcessCollector
from serving.telemetry.quick_counter import QuickCounter

own = CollectorRegistry()
counter = Counter("calls", "Calls.", ["code"], registry=own)
quick = QuickCounter(counter.labels("OK"))
counter.labels("OK").inc(5)

def call():
    for _ in range(2000):
        quick.inc()

threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads:
    thread.start()
# The file grows past its first size of a megabyte, and is mapped anew.
for number in range(4000):
    counter.labels(f"{number}-" + 200 * "x").inc()
for thread in threads:
    thread.join()
quick.inc()
counter.labels("OK").inc(2)
merged = CollectorRegistry()
MultiProcessCollector(merged)
print(*(registry.get_sample_value("calls_total", {"code": "OK"}) for registry in (own, merged)))
"""


def test_values_that_processes_share_are_exact(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SHARED],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["8008.0", "8008.0"]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) > 1 << 20


def test_values_of_one_process_are_counted_too() -> None:
    registry = CollectorRegistry()
    quick = QuickCounter(Counter("calls", "Calls.", registry=registry))
    for _ in range(3):
        quick.inc()
    assert registry.get_sample_value("calls_total") == 3
