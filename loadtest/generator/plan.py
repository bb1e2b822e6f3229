"""The plan of a load: frozen values that define it completely, including the seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loadtest.errors import PlanError

Arrivals = Literal["poisson", "constant", "closed"]


@dataclass(frozen=True)
class RequestMix:
    """The requests of a load. They are generated from the model's schema before the measurement starts.

    `candidates`: minimum and maximum per request, log-uniform in between. Ids follow a Zipf distribution with
    `zipf_exponent` over the vocabulary; a fraction of `unknown_share` is outside of it. `distinct` requests are
    prepared and sent in turn. `outputs`: names as in the client; empty means all outputs of the model.
    """

    model: str = ""
    version: int = 0
    candidates: tuple[int, int] = (256, 256)
    zipf_exponent: float = 1.1
    unknown_share: float = 0.05
    distinct: int = 512
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fewest, most = self.candidates
        if not 1 <= fewest <= most:
            raise PlanError(f"candidates = {fewest} to {most}; expected 1 <= fewest <= most")
        if self.zipf_exponent <= 0:
            raise PlanError(f"Zipf exponent {self.zipf_exponent:g}; expected more than 0")
        if not 0 <= self.unknown_share <= 1:
            raise PlanError(f"share of unknown ids {self.unknown_share:g}; expected 0 to 1")
        if self.distinct < 1:
            raise PlanError(f"{self.distinct} distinct requests; expected at least 1")


@dataclass(frozen=True)
class Checks:
    """How responses are checked while the load runs. Status and size of all responses are checked.

    `contents`: every response must contain the id of its request, and a fraction of `sampled_share` is parsed in full:
    row counts, finite numbers, model and version. A response with a new size is always parsed.
    """

    contents: bool = True
    sampled_share: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.sampled_share <= 1:
            raise PlanError(f"share of responses to check {self.sampled_share:g}; expected 0 to 1")


# For a server that returns the same bytes for every request.
STATUS_ONLY = Checks(contents=False)


@dataclass(frozen=True)
class RateStep:
    """A period of open-loop load at one rate."""

    duration_s: float
    rate_per_s: float

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < math.inf:
            raise PlanError(f"a step of {self.duration_s:g} s; expected more than 0")
        if not 0 < self.rate_per_s < math.inf:
            raise PlanError(f"a rate of {self.rate_per_s:g} requests/s; expected more than 0")


@dataclass(frozen=True)
class LoadPlan:
    """A load in an open or closed loop.

    Open loop (`poisson` or `constant` arrivals): `rate_per_s` for `duration_s`, or a sequence of `steps`. Send times
    are fixed beforehand, however slow the responses are. Closed loop: `concurrency` requests in flight for
    `duration_s`; the next one is sent when a response arrives.

    The load first runs for `warm_up_s` (at the first rate), which is not counted. It ends after `duration_s` or
    `max_requests`, whichever comes first. `processes` share the load and the `connections`. A request without a
    response after `deadline_s`, which is sent to the server, counts as DEADLINE_EXCEEDED. The timeline of the result
    has one entry per `interval_s`.
    """

    address: str
    arrivals: Arrivals = "poisson"
    rate_per_s: float = 0.0
    concurrency: int = 0
    duration_s: float = 10.0
    steps: tuple[RateStep, ...] = ()
    max_requests: int = 10_000_000
    warm_up_s: float = 1.0
    processes: int = 1
    connections: int = 8
    mix: RequestMix = field(default_factory=RequestMix)
    deadline_s: float = 1.0
    checks: Checks = field(default_factory=Checks)
    interval_s: float = 1.0
    seed: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    # PEM file of the authorities that sign the server's certificate; empty: plain text.
    tls_ca: str = ""

    def __post_init__(self) -> None:
        if self.arrivals == "closed":
            if self.concurrency < self.processes:
                raise PlanError(f"concurrency {self.concurrency} over {self.processes} processes; expected one each")
            if self.steps or self.rate_per_s:
                raise PlanError("a closed loop needs a concurrency and no rate")
        elif bool(self.steps) == bool(self.rate_per_s):
            raise PlanError("an open loop needs a rate in requests per second or steps, but not both")
        for name, value in (
            ("duration", self.duration_s),
            ("deadline", self.deadline_s),
            ("interval", self.interval_s),
        ):
            if not 0 < value < math.inf:
                raise PlanError(f"{name} of {value:g} s; expected more than 0")
        if not 0 <= self.warm_up_s < math.inf:
            raise PlanError(f"warm-up of {self.warm_up_s:g} s; expected 0 or more")
        if not 1 <= self.processes <= self.connections:
            raise PlanError(f"{self.processes} processes, {self.connections} connections; expected at least one each")
        if self.max_requests < 1:
            raise PlanError(f"at most {self.max_requests} requests; expected 1 or more")
        if self.arrivals != "closed" and not self.steps:
            RateStep(self.duration_s, self.rate_per_s)

    @property
    def rate_steps(self) -> tuple[RateStep, ...]:
        """The steps of an open loop after the warm-up: a single one if only a rate was given, none in a closed loop."""
        if self.arrivals == "closed":
            return ()
        return self.steps or (RateStep(self.duration_s, self.rate_per_s),)

    @property
    def measured_s(self) -> float:
        """Seconds of load that are counted."""
        return sum(step.duration_s for step in self.rate_steps) or self.duration_s
