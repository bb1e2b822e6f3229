"""How calls spread over the workers of a real server."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ghostless.client import AsyncClient, Client
from loadtest.workload import ServedModel
from tests.support import counted_serve
from tests.support.counted_serve import COUNTS, answered
from tests.support.processes import ServeProcess, served
from tests.support.waiting import eventually

WORKERS = 3
CALLS = 120


@pytest.fixture
def server(repository: Path, tmp_path: Path) -> Iterator[ServeProcess]:
    workers = ("--workers", str(WORKERS))
    with served(repository, *workers, environment={COUNTS: str(tmp_path)}, module=counted_serve.__name__) as running:
        yield running


def assert_even(folder: Path, total: int) -> None:
    per_worker = answered(folder)
    assert sum(per_worker) == total
    assert len(per_worker) == WORKERS
    assert max(abs(calls * WORKERS / total - 1) for calls in per_worker) <= 0.2, per_worker


def test_eight_clients_of_one_process_use_all_workers(server: ServeProcess, model: ServedModel, tmp_path: Path) -> None:
    arguments = model.rows(5, seed=1).arguments("demo")

    def call() -> None:
        with Client(server.address, timeout_s=20.0) as client:
            for _ in range(CALLS):
                client.predict(**arguments)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_even(tmp_path, 8 * CALLS)


def test_eight_threads_of_one_client_use_all_workers(server: ServeProcess, model: ServedModel, tmp_path: Path) -> None:
    arguments = model.rows(5, seed=1).arguments("demo")
    with Client(server.address, timeout_s=20.0) as client:
        threads = [
            threading.Thread(target=lambda: [client.predict(**arguments) for _ in range(CALLS)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert_even(tmp_path, 8 * CALLS)


def test_eight_tasks_of_one_asyncio_client_use_all_workers(
    server: ServeProcess, model: ServedModel, tmp_path: Path
) -> None:
    arguments = model.rows(5, seed=1).arguments("demo")

    async def call_all() -> None:
        async with AsyncClient(server.address, timeout_s=20.0) as client:

            async def call() -> None:
                for _ in range(CALLS):
                    await client.predict(**arguments)

            await asyncio.gather(*(call() for _ in range(8)))

    asyncio.run(call_all())
    assert_even(tmp_path, 8 * CALLS)


def test_one_connection_keeps_to_one_worker(server: ServeProcess, model: ServedModel, tmp_path: Path) -> None:
    arguments = model.rows(5, seed=1).arguments("demo")
    with Client(server.address, timeout_s=20.0, connections=1) as client:
        assert client.list_models().workers == WORKERS
        for _ in range(10):
            client.predict(**arguments)
    eventually(lambda: sorted(answered(tmp_path)) == [0] * (WORKERS - 1) + [10], "ten requests at one worker")
