"""Hot reload of a new version under load: clients may notice only the version in the responses."""

import shutil
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ghostless.client import CallError, Client, RetryPolicy
from ghostless.contract.repository import publish, staging
from loadtest.server_process import BenchError, running_server
from loadtest.workload import ServedModel

CLIENTS = 4
CANDIDATES = 64
APPEARS_WITHIN_S = 30.0


@dataclass
class ReloadAnswers:
    """Results of all clients together."""

    versions: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def reload_under_load(model: ServedModel, steady_s: float) -> ReloadAnswers:
    """Serve a copy of the model as version 1 and add it as version 2 while clients send requests, until both have
    answered for `steady_s`."""
    seen, stop = ReloadAnswers(), threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        _publish_copy(model, repository)
        with running_server(repository) as server:
            clients = [
                threading.Thread(target=_ask, args=(server.address, model, seed, seen, stop), daemon=True)
                for seed in range(CLIENTS)
            ]
            for client in clients:
                client.start()
            try:
                time.sleep(steady_s)
                _publish_copy(model, repository)
                until = time.monotonic() + APPEARS_WITHIN_S
                while not seen.versions[2]:
                    if time.monotonic() > until:
                        raise BenchError(f"version 2 did not come into service within {APPEARS_WITHIN_S:g} s")
                    time.sleep(0.05)
                time.sleep(steady_s)
            finally:
                stop.set()
                for client in clients:
                    client.join()
    return seen


def _publish_copy(model: ServedModel, repository: Path) -> None:
    with staging(repository, model.name) as directory:
        shutil.copytree(model.path.parent, directory, dirs_exist_ok=True)
        publish(repository, model.name, directory)


def _ask(address: str, model: ServedModel, seed: int, seen: ReloadAnswers, stop: threading.Event) -> None:
    arguments = model.rows(CANDIDATES, seed).arguments(model.name)
    # No retries, because they would hide failures.
    with Client(address, timeout_s=5.0, retry=RetryPolicy(max_attempts=1)) as client:
        while not stop.is_set():
            try:
                version = client.predict(**arguments).version
            except CallError as error:
                with seen.lock:
                    seen.failures.append(str(error))
            else:
                with seen.lock:
                    seen.versions[version] += 1
