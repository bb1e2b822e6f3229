"""Clients that send requests without pause while something happens to the servers, and their results."""

import threading
import time
from dataclasses import dataclass, field

from ghostless.client import CallError, Client, RetryPolicy, Tls
from loadtest.server_process import BenchError
from loadtest.workload import ServedModel

_STUCK_S = 120.0


@dataclass
class ClientLog:
    """One client's responses, in the order in which they arrived."""

    versions: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def switches(self) -> int:
        """How often the version in the responses changed."""
        return sum(before != after for before, after in zip(self.versions, self.versions[1:], strict=False))


class SteadyClients:
    """`clients` threads, each with one request in flight, for as long as the block lasts."""

    def __init__(
        self,
        address: str,
        model: ServedModel,
        clients: int,
        candidates: int,
        tls: Tls | None = None,
        token: str | None = None,
        calls_per_connection: int = 1 << 30,
    ) -> None:
        self._tls, self._token, self._calls = tls, token, calls_per_connection
        self.logs = [ClientLog() for _ in range(clients)]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(address, model, candidates, seed, log), daemon=True)
            for seed, log in enumerate(self.logs)
        ]

    def __enter__(self) -> "SteadyClients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def answers(self) -> int:
        return sum(len(log.versions) for log in self.logs)

    @property
    def failures(self) -> list[str]:
        return [failure for log in self.logs for failure in log.failures]

    def until(self, answers: int) -> None:
        """Wait until there are this many responses in total."""
        before, since = self.answers, time.monotonic()
        while self.answers < answers:
            time.sleep(0.02)
            if self.answers > before:
                before, since = self.answers, time.monotonic()
            elif time.monotonic() - since > _STUCK_S:
                raise BenchError(f"no response for {_STUCK_S:g} s; failures so far: {self.failures[-3:]}")

    def until_version(self, version: int) -> None:
        """Wait until the last response of every client came from `version`."""
        ends = time.monotonic() + _STUCK_S
        while not all(log.versions and log.versions[-1] == version for log in self.logs):
            if time.monotonic() > ends:
                raise BenchError(f"version {version} did not come into service within {_STUCK_S:g} s")
            time.sleep(0.02)

    def _ask(self, address: str, model: ServedModel, candidates: int, seed: int, log: ClientLog) -> None:
        arguments = model.rows(candidates, seed).arguments(model.name)
        # Without retries, which would hide a failure.
        retry = RetryPolicy(max_attempts=1)
        while not self._stop.is_set():
            with Client(address, timeout_s=10.0, retry=retry, tls=self._tls, token=self._token) as client:
                for _ in range(self._calls):
                    if self._stop.is_set():
                        break
                    try:
                        log.versions.append(client.predict(**arguments).version)
                    except CallError as error:
                        log.failures.append(str(error))
