"""The highest rate that holds an objective, by bisection over probes whose outcome is noisy near the edge."""

from dataclasses import dataclass, field


@dataclass
class RateSearch:
    """`fails`: the lowest rate that is known not to hold."""

    fails: float
    _held: list[float] = field(default_factory=list)

    @property
    def holds(self) -> float:
        """The highest rate that was seen to hold, 0 if none was. Where probes contradict each other the failure
        counts: a rate above one that failed does not hold."""
        return max((rate for rate in self._held if rate < self.fails), default=0.0)

    def learn(self, rate: float, held: bool) -> None:
        if held:
            self._held.append(rate)
        else:
            self.fails = min(self.fails, rate)

    def next_rate(self) -> float:
        return 0.5 * (self.holds + self.fails)
