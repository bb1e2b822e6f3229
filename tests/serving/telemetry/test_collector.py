"""Values of several processes as one: counters and histograms add up, gauges as their family says."""

import math

import pytest

from serving.telemetry.collector import merge
from serving.telemetry.instruments import Counter, Gauge, Labelled
from serving.telemetry.values import Family, Merge, ProcessValues, Series, ValueMemory

UP = Series("up", ("a",))


def process(merge: Merge, value: float) -> ProcessValues:
    memory = ValueMemory()
    Labelled(Gauge, Family("up", "gauge", "Up.", ("endpoint",), merge=merge), memory).labels("a").set(value)
    return memory.read()


@pytest.mark.parametrize(("how", "expected"), [("sum", 5.0), ("max", 3.0), ("min", 2.0)])
def test_gauges_merge_as_their_family_says(how: Merge, expected: float) -> None:
    assert merge([process(how, 2.0), process(how, 3.0)]).series[UP] == [expected]
    assert merge([process(how, 2.0)]).series[UP] == [2.0]


@pytest.mark.parametrize("how", ["max", "min"])
def test_what_one_process_no_longer_knows_is_as_another_sees_it(how: Merge) -> None:
    for first, second in ((math.nan, 0.0), (0.0, math.nan)):
        assert merge([process(how, first), process(how, second)]).series[UP] == [0.0]
    (value,) = merge([process(how, math.nan), process(how, math.nan)]).series[UP]
    assert math.isnan(value)


def test_series_that_only_one_process_has_are_there() -> None:
    one, other = ValueMemory(), ValueMemory()
    calls = Family("calls", "counter", "Calls.", ("code",))
    Labelled(Counter, calls, one).labels("OK").inc(2)
    Labelled(Counter, calls, other).labels("NOT_FOUND").inc(3)
    assert merge([one.read(), other.read()]).series == {
        Series("calls", ("OK",)): [2.0],
        Series("calls", ("NOT_FOUND",)): [3.0],
    }
