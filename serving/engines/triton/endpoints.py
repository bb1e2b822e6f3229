"""The Tritons of one facade: given as a list or DNS names, balanced by the outstanding rows of each."""

import logging
import random
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from ghostless.contract.errors import ConfigError
from serving.engines.triton.endpoint import Endpoint
from serving.errors import UnavailableError

_log = logging.getLogger(__name__)


class EndpointBalancer:
    def __init__(self, addresses: Sequence[str], make: Callable[[str], Endpoint], resolve_s: float) -> None:
        self._names = [split_address(address) for address in addresses]
        if not self._names:
            raise ConfigError("no Triton server is configured; set --triton HOST:PORT,HOST:PORT")
        self._make = make
        self._resolve_s = resolve_s
        self._lock = threading.Lock()
        self._endpoints: dict[str, Endpoint] = {}
        self._leaving: list[Endpoint] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._resolve, name="triton addresses", daemon=True)

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return list(self._endpoints.values())

    def start(self) -> None:
        self._refresh()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        for endpoint in [*self._endpoints.values(), *self._leaving]:
            endpoint.stop()

    def take(self, name: str, version: int, tried: Collection[Endpoint] = ()) -> Endpoint | None:
        """Reserve a call on the least busy endpoint that can serve this version; None if there is none."""
        endpoint = self._choose(name, version, tried, most_calls=None)
        return None if endpoint == "busy" else endpoint

    def take_free(self, name: str, version: int, most_calls: int) -> Endpoint | Literal["busy"] | None:
        """Like `take`, among endpoints with fewer than `most_calls` calls in flight; "busy" if all have more."""
        return self._choose(name, version, (), most_calls)

    def _choose(
        self, name: str, version: int, tried: Collection[Endpoint], most_calls: int | None
    ) -> Endpoint | Literal["busy"] | None:
        with self._lock:
            usable = [
                endpoint
                for endpoint in self._endpoints.values()
                if endpoint.has(name, version) and endpoint not in tried and endpoint.breaker.may_pass()
            ]
            free = [endpoint for endpoint in usable if most_calls is None or endpoint.calls < most_calls]
            # Shuffled, so that facades with the same counts don't all choose the same endpoint.
            random.shuffle(free)
            for endpoint in sorted(free, key=lambda each: each.outstanding_rows):
                if endpoint.breaker.claim():
                    endpoint.calls += 1
                    return endpoint
        return "busy" if usable and not free else None

    def add_rows(self, endpoint: Endpoint, rows: int) -> None:
        """Add the rows of the call that the endpoint was reserved for."""
        with self._lock:
            endpoint.outstanding_rows += rows

    def release(self, endpoint: Endpoint, rows: int) -> None:
        """Call this when the call has ended."""
        with self._lock:
            endpoint.calls -= 1
            endpoint.outstanding_rows -= rows

    def unavailable_error(self, name: str, version: int) -> UnavailableError:
        """The error that explains why `take` found no endpoint."""
        states = ", ".join(
            f"{endpoint.address} {'lacks this version or keeps failing' if endpoint.ready else 'is not ready'}"
            for endpoint in self._endpoints.values()
        )
        return UnavailableError(f"no Triton can serve model {name!r} version {version}: {states}")

    def _resolve(self) -> None:
        while not self._stopped.wait(self._resolve_s):
            try:
                self._refresh()
            except Exception:
                _log.exception("resolving the Triton host names failed; the known addresses stay in use")

    def _refresh(self) -> None:
        """Update the endpoints to the addresses that the names currently resolve to."""
        found: set[str] = set()
        for host, port in self._names:
            try:
                found.update(resolve(host, port))
            except OSError as error:
                _log.warning("cannot resolve the Triton host %s: %s", host, error)
                # Keep the known endpoints: a DNS failure does not mean that they are down.
                found.update(self._endpoints)
        added = {address: self._make(address) for address in sorted(found - set(self._endpoints))}
        with self._lock:
            self._leaving += [endpoint for address, endpoint in self._endpoints.items() if address not in found]
            remaining = {address: endpoint for address, endpoint in self._endpoints.items() if address in found}
            self._endpoints = {**remaining, **added}
        for endpoint in added.values():
            endpoint.start()
        for endpoint in [each for each in self._leaving if not each.calls]:
            _log.info("Triton %s is no longer among the resolved addresses", endpoint.address)
            self._leaving.remove(endpoint)
            endpoint.stop()


def split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise ConfigError(f"Triton's address is {address!r}, expected HOST:PORT with its gRPC port, usually 8001")
    return host.strip("[]"), int(port)


def resolve(host: str, port: int) -> list[str]:
    """All addresses of the name, as "ADDRESS:PORT"; only IPv4 if there are any, because a server often has both."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    plain = sorted({str(each[4][0]) for each in found if each[0] == socket.AF_INET})
    return [f"{ip}:{port}" for ip in plain] or sorted({f"[{each[4][0]}]:{port}" for each in found})
