"""Rounds in which all servers and bare ONNX Runtime take turns.

Every round restarts every server (the reason is in interleave/rounds.py). All servers of a round are in memory
together; all except the one whose turn it is are stopped.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean

from benchmarks.peers.servers import GHOSTLESS, Peer, RunningServer, Target, mean_only
from benchmarks.turns import Sample, Slice, measure, stopped
from loadtest.bare_session import BareCores, BareLoad, bare_cores
from loadtest.h2load import Generator

SIZES = (1, 256, 1000)
MEAN_ONLY_ROWS = 1000


@dataclass(frozen=True)
class Plan:
    rounds: int
    slice_s: float
    # Slices per server, round and request size.
    slices: int


FULL = Plan(rounds=3, slice_s=0.5, slices=6)
QUICK = Plan(rounds=2, slice_s=0.4, slices=2)


@dataclass
class Measured:
    """One round: samples by server and rows, and those of bare ONNX Runtime by rows. `mean_only_cpu_ms`: CPU of a
    request for the mean only."""

    samples: dict[tuple[Peer, int], Sample] = field(default_factory=dict)
    bare: dict[int, BareLoad] = field(default_factory=dict)
    mean_only_cpu_ms: float = 0.0

    def cpu_ms(self, peer: Peer, size: int) -> float:
        return 1e3 * self.samples[peer, size].cpu_per_request_s

    def bare_cpu_ms(self, size: int) -> float:
        return 1e3 * self.bare[size].cpu_per_run_s

    def share_of_bare(self, peer: Peer, size: int) -> float:
        return self.samples[peer, size].requests_per_s / self.bare[size].runs_per_s


class Comparison:
    """Rounds of some servers with one graph. The first round tries each server with every number of processes."""

    def __init__(self, target: Target, peers: Sequence[Peer], plan: Plan, say: Callable[[str], None]) -> None:
        self._target = target
        self._peers = peers
        self._plan = plan
        self._say = say
        # By server and rows.
        self.best: dict[tuple[Peer, int], int] = {}

    def run(self) -> list[Measured]:
        return [self._round(number) for number in range(self._plan.rounds)]

    def _round(self, number: int) -> Measured:
        measured = Measured()
        with ExitStack() as stack:
            servers: dict[tuple[Peer, int], RunningServer] = {}
            for peer in self._peers:
                chosen = {count for (each, _), count in self.best.items() if each is peer}
                for processes in sorted(chosen) or peer.processes:
                    servers[peer, processes] = stack.enter_context(peer.start(self._target, processes))
            cores = stack.enter_context(bare_cores(self._target.model.path, self._target.model.outputs))
            stack.enter_context(stopped(*(server.group for server in servers.values())))
            for size in SIZES:
                self._size(size, number, servers, cores, measured)
        return measured

    def _size(
        self,
        size: int,
        number: int,
        servers: dict[tuple[Peer, int], RunningServer],
        cores: BareCores,
        measured: Measured,
    ) -> None:
        rows = self._target.model.rows(size, seed=number)
        feeds = rows.feeds()
        loads = {peer: peer.load(self._target, rows) for peer in self._peers}
        if not number:
            self._choose(size, servers, loads)
        slices: dict[Peer, list[Slice]] = {peer: [] for peer in self._peers}
        of_mean: list[Slice] = []
        bare: list[BareLoad] = []
        for turn in range(self._plan.slices + 1):
            order = self._peers if (turn + number) % 2 else tuple(reversed(self._peers))
            for peer in order:
                slices[peer].append(self._slice(servers[peer, self.best[peer, size]], loads[peer]))
            if size == MEAN_ONLY_ROWS:
                ours = servers[GHOSTLESS, self.best[GHOSTLESS, size]]
                of_mean.append(self._slice(ours, mean_only(self._target, rows)))
            bare.append(cores.load(feeds, self._plan.slice_s))
        # The first slice of each is a warm-up.
        measured.bare[size] = _mean(bare[1:])
        for peer in self._peers:
            measured.samples[peer, size] = Sample.of(slices[peer][1:])
        if of_mean:
            measured.mean_only_cpu_ms = 1e3 * Sample.of(of_mean[1:]).cpu_per_request_s
        self._tell(size, measured)

    def _choose(self, size: int, servers: dict[tuple[Peer, int], RunningServer], loads: dict[Peer, Generator]) -> None:
        for peer in self._peers:
            rates = {}
            for processes in peer.processes:
                self._slice(servers[peer, processes], loads[peer])
                rates[processes] = Sample.of([self._slice(servers[peer, processes], loads[peer])]).requests_per_s
            self.best[peer, size] = max(rates, key=lambda processes: rates[processes])

    def _slice(self, server: RunningServer, load: Generator) -> Slice:
        return measure(server.group, server.address, load, self._plan.slice_s)

    def _tell(self, size: int, measured: Measured) -> None:
        bare = measured.bare[size]
        self._say(f"  {size} rows: bare {measured.bare_cpu_ms(size):.3f} ms CPU, {bare.runs_per_s:,.0f} runs/s")
        for peer in self._peers:
            sample = measured.samples[peer, size]
            self._say(
                f"    {peer.name} ({self.best[peer, size]}): {measured.cpu_ms(peer, size):.3f} ms CPU, "
                f"{sample.requests_per_s:,.0f} requests/s, p99 {1e3 * sample.p99_s:.1f} ms"
            )


def _mean(loads: Sequence[BareLoad]) -> BareLoad:
    return BareLoad(fmean(each.runs_per_s for each in loads), fmean(each.cpu_per_run_s for each in loads))
