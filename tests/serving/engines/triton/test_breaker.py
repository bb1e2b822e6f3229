"""The circuit breaker by itself, on a clock of the test's own."""

from serving.engines.triton.breaker import BreakerLimits, Circuit, CircuitBreaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _circuit(breaker: CircuitBreaker) -> Circuit:
    """Read anew each time: mypy takes an attribute for what it was."""
    return breaker.circuit


def test_the_breaker_opens_tries_once_and_closes_or_waits_twice_as_long() -> None:
    clock = Clock()
    breaker = CircuitBreaker(BreakerLimits(failures=2, first_open_s=1.0, longest_open_s=3.0), clock)
    breaker.failed()
    assert breaker.claim()
    breaker.succeeded()
    breaker.failed()
    assert _circuit(breaker) is Circuit.CLOSED, "the failures were not in a row"
    breaker.failed()
    assert _circuit(breaker) is Circuit.OPEN
    assert not breaker.may_pass()
    assert not breaker.claim()
    clock.now = 1.0
    assert breaker.claim()
    assert _circuit(breaker) is Circuit.HALF_OPEN
    assert not breaker.claim(), "one probe at a time"
    breaker.failed()
    clock.now = 2.5
    assert not breaker.claim()
    clock.now = 3.0
    assert breaker.claim()
    breaker.succeeded()
    assert _circuit(breaker) is Circuit.CLOSED
    assert breaker.claim()
    assert breaker.claim()
