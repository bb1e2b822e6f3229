"""Cost of a fleet that serves a peak rate within the latency objective, at given prices."""

import math
from dataclasses import dataclass

from loadtest.compare.findings import Comparison, Measured
from loadtest.errors import PlanError

HOURS_PER_MONTH = 730


@dataclass(frozen=True)
class Prices:
    """Prices of cores and memory, which dominate the cost of cloud machines. The defaults are similar to public list
    prices."""

    core_hour: float = 0.04
    gb_hour: float = 0.005
    # Requests per second at the daily peak, and the planned load as a share of the highest rate within the objective.
    peak_per_s: float = 10_000.0
    utilisation: float = 0.7

    def __post_init__(self) -> None:
        if self.core_hour < 0 or self.gb_hour < 0:
            raise PlanError(f"prices of {self.core_hour:g} and {self.gb_hour:g}; expected 0 or more")
        if not self.peak_per_s > 0:
            raise PlanError(f"a peak of {self.peak_per_s:g} requests/s; expected more than 0")
        if not 0 < self.utilisation <= 1:
            raise PlanError(f"a utilisation of {self.utilisation:g}; expected more than 0, up to 1")


@dataclass(frozen=True)
class Fleet:
    """Cores and memory that serve the peak, and their price."""

    cores: int
    memory_gb: float
    per_month: float


def size_fleet(measured: Measured, comparison: Comparison, prices: Prices) -> Fleet | None:
    """The fleet for a variant; None if no rate met the objective, because then no number of machines does."""
    if not measured.rate_at_objective:
        return None
    per_core = prices.utilisation * measured.rate_at_objective / comparison.server_cores
    cores = math.ceil(prices.peak_per_s / per_core)
    memory_gb = cores * measured.resident_mb / 1000 / comparison.server_cores
    hourly = cores * prices.core_hour + memory_gb * prices.gb_hour
    return Fleet(cores, memory_gb, hourly * HOURS_PER_MONTH)


def memory_gb_s_per_million_rows(measured: Measured, candidates: int) -> float:
    """Memory times the seconds that a million rows take at saturation."""
    return measured.resident_mb / 1000 * 1e6 / (measured.throughput_per_s * candidates)


def cpu_price_per_million_rows(measured: Measured, prices: Prices) -> float:
    """Price of the CPU time that was used, without idle headroom."""
    return measured.cpu_s / 3600 * prices.core_hour
