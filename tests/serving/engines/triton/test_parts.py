"""The triton engine's parts by themselves: breaker, balancing, which version serves, what an error means."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import pytest

from ghostless.contract.errors import ConfigError, RequestError
from serving.engines.interface import VersionState
from serving.engines.triton.breaker import BreakerLimits, Circuit, CircuitBreaker
from serving.engines.triton.catalogue import Catalogue
from serving.engines.triton.endpoint import Endpoint
from serving.engines.triton.endpoints import EndpointBalancer, resolve, split_address
from serving.engines.triton.errors import judge
from serving.engines.triton.state import RemoteModel
from serving.errors import EngineError, ExpiredError, NotFoundError, OverloadedError, UnavailableError
from tests.serving.onnx_models import CR_OUTPUTS, SMALL, metadata_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_breaker_opens_tries_once_and_closes_or_waits_twice_as_long() -> None:
    clock = Clock()
    breaker = CircuitBreaker(BreakerLimits(failures=2, first_open_s=1.0, longest_open_s=3.0), clock)
    breaker.failed()
    assert breaker.claim()
    breaker.succeeded()
    breaker.failed()
    assert breaker.circuit is Circuit.CLOSED, "the failures were not in a row"
    breaker.failed()
    assert breaker.circuit is Circuit.OPEN
    assert not breaker.may_pass()
    assert not breaker.claim()
    clock.now = 1.0
    assert breaker.claim()
    assert breaker.circuit is Circuit.HALF_OPEN
    assert not breaker.claim(), "one probe at a time"
    breaker.failed()
    clock.now = 2.5
    assert not breaker.claim()
    clock.now = 3.0
    assert breaker.claim()
    breaker.succeeded()
    assert breaker.circuit is Circuit.CLOSED
    assert breaker.claim()
    assert breaker.claim()


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

    def lookup(host: str, port: int, **_: Any) -> list[Any]:
        if not known:
            raise OSError("no answer from the resolver")
        return [(socket.AF_INET, 0, 0, "", (ip, port)) for ip in known]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    balancer = EndpointBalancer(["tritons:8001"], StillEndpoint, resolve_s=0.01)
    balancer.start()
    first = balancer.endpoints[0]
    known[1] = "10.0.0.3"
    _until(lambda: [e.address for e in balancer.endpoints] == ["10.0.0.1:8001", "10.0.0.3:8001"])
    assert balancer.endpoints[0] is first, "who stays keeps his connection"
    known.clear()
    time.sleep(0.05)
    assert len(balancer.endpoints) == 2, "a resolver that fails says nothing about the servers"
    balancer.stop()


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come true within 5 s")


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


def _state(ready: set[int], in_service: int = 0, **changes: Any) -> Mapping[str, RemoteModel]:
    properties = {version: metadata_of(SMALL).dump() for version in ready}
    values: dict[str, Any] = {"max_rows": 64, "outputs": CR_OUTPUTS, "properties": properties, **changes}
    return {"demo": RemoteModel("demo", frozenset(ready), in_service=in_service, **values)}


def _catalogue(pointer: int = 0) -> Catalogue:
    return Catalogue("", lambda name, version: None, lambda name: pointer)


def test_a_roll_out_switches_once_all_tritons_say_so() -> None:
    catalogue = _catalogue()
    for told, expected in [((1, 1), 1), ((2, 1), 1), ((2, 2), 2), ((1, 2), 2), ((1, 1), 1)]:
        catalogue.update([_state({1, 2}, in_service) for in_service in told])
        assert catalogue.resolve("demo", 0).version == expected


def test_without_a_word_the_repository_decides_and_else_what_all_have() -> None:
    states = [_state({1, 2}), _state({1, 2, 3})]
    catalogue = _catalogue(pointer=1)
    catalogue.update(states)
    assert catalogue.resolve("", 0).version == 1
    catalogue = _catalogue()
    catalogue.update(states)
    assert catalogue.resolve("", 0).version == 2
    assert catalogue.resolve("", 3).version == 3


def test_a_version_keeps_its_identity_and_models_stay_known_while_all_are_away() -> None:
    catalogue = _catalogue()
    catalogue.update([_state({1})])
    known = catalogue.resolve("demo", 1)
    catalogue.update([_state({1}), _state({1})])
    assert catalogue.resolve("demo", 1) is known
    catalogue.update([])
    assert catalogue.resolve("demo", 0) is known
    catalogue.update([_state({1}, max_rows=32)])
    assert catalogue.resolve("demo", 1) is not known


def test_a_version_without_metadata_is_listed_as_failed() -> None:
    catalogue = _catalogue()
    with pytest.raises(UnavailableError, match="no Triton has been reached"):
        catalogue.resolve("", 0)
    catalogue.update([_state({1}, properties={})])
    (status,) = catalogue.models()
    assert status.versions[0].state is VersionState.FAILED
    assert "no ghostless.* parameters" in status.versions[0].message
    assert not catalogue.is_complete()
    with pytest.raises(UnavailableError, match="no version that is ready"):
        catalogue.resolve("demo", 0)
    with pytest.raises(NotFoundError, match="no model 'other'; there is: demo"):
        catalogue.resolve("other", 0)


@pytest.mark.parametrize(
    ("code", "details", "error", "elsewhere", "blame"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses", UnavailableError, True, True),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", UnavailableError, True, True),
        (grpc.StatusCode.UNAVAILABLE, "[request id: x] Exceeds maximum queue size", OverloadedError, True, False),
        (grpc.StatusCode.UNAVAILABLE, "Request timeout expired", ExpiredError, False, False),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ExpiredError, False, False),
        (
            grpc.StatusCode.UNAVAILABLE,
            "Request for unknown model: 'demo' version 2 is not at ready state",
            UnavailableError,
            True,
            False,
        ),
        (grpc.StatusCode.INVALID_ARGUMENT, "unexpected shape for input 'hour'", EngineError, False, False),
        (grpc.StatusCode.INTERNAL, "running the model failed", EngineError, False, False),
    ],
)
def test_what_a_failed_call_means(
    code: grpc.StatusCode, details: str, error: type[RequestError], elsewhere: bool, blame: bool
) -> None:
    verdict = judge(code, details, "127.0.0.1:1")
    assert (type(verdict.error), verdict.elsewhere, verdict.blame) == (error, elsewhere, blame)
