"""Time until a server has recovered from overload, from the timeline of a run with rate steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.generator.result import Interval

# Recovered: no request is rejected or fails, and the median latency is at most this multiple of the one before, plus a
# slack of a millisecond, for this number of consecutive intervals.
_TIMES_SLOWER = 2.0
_SLACK_S = 0.001
_IN_A_ROW = 3


@dataclass(frozen=True)
class Stretch:
    """Totals of a part of a timeline."""

    seconds: float
    due: int
    ok: int
    rows: int
    shed: int
    failed: int
    p50_s: float
    worst_s: float

    @property
    def goodput_per_s(self) -> float:
        return self.ok / self.seconds if self.seconds else math.nan

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds else math.nan


def stretch(timeline: Sequence[Interval], start_s: float, end_s: float) -> Stretch:
    """Totals of the intervals that are fully inside; `p50_s` is the median of their medians."""
    inside = [i for i in timeline if i.start_s >= start_s - 1e-9 and i.start_s + i.length_s <= end_s + 1e-9]
    answered = [interval for interval in inside if not math.isnan(interval.p50_s)]
    return Stretch(
        seconds=sum(interval.length_s for interval in inside),
        due=sum(interval.due for interval in inside),
        ok=sum(interval.ok for interval in inside),
        rows=sum(interval.rows for interval in inside),
        shed=sum(interval.shed for interval in inside),
        failed=sum(interval.failed for interval in inside),
        p50_s=float(np.median([interval.p50_s for interval in answered])) if answered else math.nan,
        worst_s=max((interval.worst_s for interval in answered), default=math.nan),
    )


def recovery_s(timeline: Sequence[Interval], ended_s: float, until_s: float, before: Stretch) -> float:
    """Seconds from `ended_s`, when the overload ended, to the first of several consecutive good intervals; infinite if
    there are none before `until_s`. The resolution is the length of an interval."""
    after = [i for i in timeline if i.start_s >= ended_s - 1e-9 and i.start_s + i.length_s <= until_s + 1e-9]
    well = [_is_well(interval, before) for interval in after]
    for place in range(len(well) - _IN_A_ROW + 1):
        if all(well[place : place + _IN_A_ROW]):
            return max(0.0, after[place].start_s - ended_s)
    return math.inf


def _is_well(interval: Interval, before: Stretch) -> bool:
    return not interval.failed and interval.p50_s <= _TIMES_SLOWER * before.p50_s + _SLACK_S
