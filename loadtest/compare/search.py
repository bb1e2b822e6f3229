"""Finds the highest rate within an objective, by bisection over probes that are noisy near the limit."""

from dataclasses import dataclass, field


@dataclass
class RateSearch:
    """`fails`: the lowest rate that is known to miss the objective."""

    fails: float
    _held: list[float] = field(default_factory=list)

    @property
    def holds(self) -> float:
        """The highest rate that met the objective, or 0. If probes contradict each other, the failure counts: no rate
        above a failed one is accepted."""
        return max((rate for rate in self._held if rate < self.fails), default=0.0)

    def learn(self, rate: float, held: bool) -> None:
        if held:
            self._held.append(rate)
        else:
            self.fails = min(self.fails, rate)

    def next_rate(self) -> float:
        return 0.5 * (self.holds + self.fails)
