"""Which endpoint takes a call, and which addresses there are."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ghostless.contract.errors import ConfigError
from serving.engines.triton.endpoint import Endpoint
from serving.engines.triton.endpoints import EndpointBalancer, resolve, split_address
from serving.engines.triton.state import RemoteModel
from tests.support.waiting import eventually


class StillEndpoint(Endpoint):
    """Has version 1 of demo, is ready, and is never probed."""

    def __init__(self, address: str) -> None:
        super().__init__(address, 1.0, lambda: None)
        self.models = {"demo": RemoteModel("demo", frozenset({1}))}
        self.ready = True

    def start(self) -> None:
        """Nobody listens there."""


@pytest.fixture
def balancer() -> Iterator[EndpointBalancer]:
    balancer = EndpointBalancer(["127.0.0.1:1", "127.0.0.1:2"], StillEndpoint, resolve_s=100)
    balancer.start()
    yield balancer
    balancer.stop()


def test_the_endpoint_with_the_least_outstanding_rows_is_taken(balancer: EndpointBalancer) -> None:
    first = balancer.take("demo", 1)
    assert first is not None
    balancer.add_rows(first, 100)
    second = balancer.take("demo", 1)
    assert second is not None
    assert first is not second
    balancer.add_rows(second, 10)
    assert balancer.take("demo", 1) is second
    balancer.release(first, 100)
    assert balancer.take("demo", 1) is first


def test_endpoints_take_only_so_many_calls_at_a_time(balancer: EndpointBalancer) -> None:
    taken = [balancer.take_free("demo", 1, most_calls=1) for _ in range(2)]
    assert set(taken) == set(balancer.endpoints)
    assert balancer.take_free("demo", 1, most_calls=1) == "busy"
    assert isinstance(balancer.take("demo", 1), Endpoint), "a retry does not wait"
    assert balancer.take_free("demo", 2, most_calls=1) is None
    other = balancer.endpoints[1]
    balancer.release(other, 0)
    balancer.release(other, 0)
    assert balancer.take_free("demo", 1, most_calls=1) is other


def test_endpoints_that_lack_the_version_were_tried_or_fail_are_passed_over(balancer: EndpointBalancer) -> None:
    assert balancer.take("demo", 2) is None
    one, other = balancer.endpoints
    assert balancer.take("demo", 1, tried=[one]) is other
    for _ in range(10):
        other.breaker.failed()
    assert balancer.take("demo", 1, tried=[one]) is None
    assert balancer.take("demo", 1) is one
    one.ready = False
    assert balancer.take("demo", 1) is None
    assert "is not ready" in str(balancer.unavailable_error("demo", 1))


def test_endpoints_follow_what_the_names_resolve_to(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ["10.0.0.1", "10.0.0.2"]
    failures: list[str] = []

    def lookup(host: str, port: int, **_: Any) -> list[Any]:
        if not known:
            failures.append(host)
            raise OSError("no answer from the resolver")
        return [(socket.AF_INET, 0, 0, "", (ip, port)) for ip in known]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    balancer = EndpointBalancer(["tritons:8001"], StillEndpoint, resolve_s=0.01)
    balancer.start()
    first = balancer.endpoints[0]
    known[1] = "10.0.0.3"
    eventually(lambda: [e.address for e in balancer.endpoints] == ["10.0.0.1:8001", "10.0.0.3:8001"])
    assert balancer.endpoints[0] is first, "who stays keeps his connection"
    known.clear()
    # At the second, what follows the first is done.
    eventually(lambda: len(failures) >= 2, "two lookups without an answer")
    assert len(balancer.endpoints) == 2, "a resolver that fails says nothing about the servers"
    balancer.stop()


def test_names_stand_for_all_their_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, port: int, **_: Any) -> list[Any]:
        v4 = [(socket.AF_INET, 0, 0, "", (ip, port)) for ip in ("10.0.0.2", "10.0.0.1")]
        return [*v4, (socket.AF_INET6, 0, 0, "", ("fd00::1", port, 0, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert resolve("tritons", 8001) == ["10.0.0.1:8001", "10.0.0.2:8001"]
    assert split_address("[::1]:8001") == ("::1", 8001)
    for wrong in ("tritons", ":8001", "tritons:grpc"):
        with pytest.raises(ConfigError, match="expected HOST:PORT"):
            split_address(wrong)
