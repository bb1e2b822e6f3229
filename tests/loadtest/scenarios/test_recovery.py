import math

import pytest

from loadtest.generator.result import Interval
from loadtest.scenarios.recovery import recovery_s, stretch


def _interval(place: int, ok: int = 25, failed: int = 0, p50_s: float = 0.004) -> Interval:
    return Interval(0.25 * place, 0.25, ok + failed, ok, failed, failed, 256 * ok, p50_s, 2 * p50_s, 3 * p50_s)


# A second of calm, one of overload, half a second of refusals, a quarter of slow answers, then well.
TIMELINE = (
    [_interval(place) for place in range(4)]
    + [_interval(place, ok=50, failed=50, p50_s=0.08) for place in range(4, 8)]
    + [_interval(8, failed=3), _interval(9, failed=1), _interval(10, p50_s=0.02)]
    + [_interval(place, p50_s=0.005) for place in range(11, 20)]
)


def test_a_stretch_adds_up_its_intervals() -> None:
    burst = stretch(TIMELINE, 1.0, 2.0)
    assert (burst.seconds, burst.due, burst.ok, burst.shed) == (1.0, 400, 200, 200)
    assert burst.goodput_per_s == 200.0
    assert burst.p50_s == 0.08
    assert burst.worst_s == pytest.approx(0.24)


def test_recovery_counts_to_the_first_of_several_well_intervals() -> None:
    before = stretch(TIMELINE, 0.0, 1.0)
    assert recovery_s(TIMELINE, 2.0, 5.0, before) == pytest.approx(0.75)
    relapsing = [*TIMELINE[:13], _interval(13, failed=1), *TIMELINE[14:]]
    assert recovery_s(relapsing, 2.0, 5.0, before) == pytest.approx(1.5)


def test_a_server_that_stays_slow_never_recovers() -> None:
    before = stretch(TIMELINE, 0.0, 1.0)
    slow = [*TIMELINE[:8], *(_interval(place, p50_s=0.05) for place in range(8, 20))]
    assert recovery_s(slow, 2.0, 5.0, before) == math.inf
