"""Results of a comparison: plain values that can be written to JSON and read back, to report them at other prices."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest.compare.variants import HeadName, VariantKind
from loadtest.errors import PlanError

FORMAT = 1


@dataclass(frozen=True)
class Point:
    """An open loop at one offered rate; latencies are measured from the scheduled send time."""

    rate_per_s: float
    goodput_per_s: float
    p50_ms: float
    p99_ms: float
    failed_share: float

    def holds(self, objective_ms: float) -> bool:
        return self.failed_share <= 0.001 and self.p99_ms <= objective_ms


@dataclass(frozen=True)
class Uncertainty:
    """Mean variances over the rows of the same requests, in target units squared, for known and unknown ids."""

    aleatoric_known: float
    epistemic_known: float
    aleatoric_unknown: float
    epistemic_unknown: float


@dataclass
class Measured:
    """The results of one variant. Lists have one entry per round; variants took turns within each round."""

    name: str
    title: str
    head: HeadName
    kind: VariantKind
    engine_ms: list[float] = field(default_factory=list)
    saturated_per_s: list[float] = field(default_factory=list)
    cpu_s_per_million_rows: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    # Mean rows per batch at saturation; empty if they were not counted.
    batch_rows: list[float] = field(default_factory=list)
    answer_bytes: float = 0.0
    points: list[Point] = field(default_factory=list)
    rate_at_objective: float = 0.0
    uncertainty: Uncertainty | None = None
    check_failures: dict[str, int] = field(default_factory=dict)

    def add(self, point: Point) -> None:
        """Add a probe. Of two probes at the same rate the better one counts: other load on the machine spoiled the
        worse."""
        others = [each for each in self.points if each.rate_per_s != point.rate_per_s]
        same = [each for each in self.points if each.rate_per_s == point.rate_per_s]
        best = min([*same, point], key=lambda each: (each.failed_share, each.p99_ms))
        self.points = sorted([*others, best], key=lambda each: each.rate_per_s)

    @property
    def throughput_per_s(self) -> float:
        return statistics.median(self.saturated_per_s)

    @property
    def cpu_s(self) -> float:
        """CPU seconds per million rows."""
        return statistics.median(self.cpu_s_per_million_rows)

    @property
    def resident_mb(self) -> float:
        return max(self.memory_mb)


@dataclass
class Comparison:
    """Results of all variants, with the settings, the machine they ran on and the command that repeats the run."""

    engine: str
    candidates: int
    objective_ms: float
    server_cores: int
    command: str
    settings: Mapping[str, Any]
    environment: Mapping[str, str]
    measured: list[Measured]
    # Offered rates of the latency curves; a variant skips the rates beyond its throughput.
    rates: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0
    format: int = FORMAT

    def of(self, head: HeadName, kind: VariantKind) -> Measured | None:
        return next((m for m in self.measured if (m.head, m.kind) == (head, kind)), None)

    @property
    def heads(self) -> list[HeadName]:
        return list(dict.fromkeys(m.head for m in self.measured))

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def parse(cls, text: str, source: Path | str) -> "Comparison":
        try:
            values = json.loads(text)
            if values["format"] != FORMAT:
                raise PlanError(f"{source} has format {values['format']}, this version reads {FORMAT}; compare again")
            measured = [_measured(entry) for entry in values.pop("measured")]
            return cls(**values, measured=measured)
        except (ValueError, TypeError, KeyError) as error:
            raise PlanError(f"{source} is no report of `ghostless loadtest compare`: {error}") from error


def _measured(entry: dict[str, Any]) -> Measured:
    points = [Point(**point) for point in entry.pop("points")]
    uncertainty = entry.pop("uncertainty")
    return Measured(**entry, points=points, uncertainty=Uncertainty(**uncertainty) if uncertainty else None)


def round_ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Ratio of one variant's figure to another's, for each round."""
    return [a / b for a, b in zip(over, under, strict=True)]
