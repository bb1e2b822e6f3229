"""Runs every attack of the table against a server: measures how long another client's calls take and how much the
server's memory grows, and checks how the server ends the attack."""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import psutil

from benchmarks.gates import gates_bench
from benchmarks.gates.gates_bench import GatesBench
from ghostless.client import Tls
from ghostless.client.calls import predict_call
from loadtest.figures import Figures
from loadtest.generator.request_frames import METHOD
from loadtest.hostile.attacks import Attack, Kind
from loadtest.hostile.calls import CALLS
from loadtest.hostile.floods import FLOODS
from loadtest.hostile.stalls import MANY, STALLS
from loadtest.hostile.tls_attacks import HANDSHAKES, WAITING_HANDSHAKES
from loadtest.server_process import ServerProcess
from serving.security.development_ca import CA

MB = 1e6
# Bytes per second of all connections together: the rate at which the issue about legal control frames was measured, and
# as fast as possible.
RATES = {"6 MB/s": 6 * MB, "full speed": 0.0}
CONNECTIONS = 4
STALLED_CONNECTIONS = 8
# More than --max-connections-per-peer.
MANY_CONNECTIONS = 560
# Rows per call. First: the other client. Second: an attacker, with a single row, because it is the frames that are
# tested: thousands of simultaneous valid calls with many rows would be overload, which fills the queue for everyone.
# Third: an attacker that does not read, whose answers have to be large.
_ROWS, _ATTACKED_ROWS, _UNREAD_ROWS = 16, 1, 256
# The longest of the server's other deadlines is 30 s; idle connections are closed after 20 s here.
_IDLE_OPTION = ("--connection-idle-s", "20")
# The value of --max-streams.
_WARM_CALLS = 1000
_HANDSHAKES_S = 3.0
_LEAST_BOUND_MS = 10.0
_MOST_TIMES = 3.0


@dataclass(frozen=True)
class HostilePlan:
    """How long to measure. Bounds are not part of it: they are the same for every plan."""

    round_s: float
    stall_s: float
    handshake_s: float


FULL = HostilePlan(round_s=2.0, stall_s=60.0, handshake_s=10.0)
QUICK = HostilePlan(round_s=0.7, stall_s=60.0, handshake_s=10.0)


@dataclass
class HostileBench:
    server: ServerProcess
    sink_port: int
    bystander: "subprocess.Popen[str]"
    messages: dict[int, bytes]
    figures: Figures
    plan: HostilePlan
    failures: list[str] = field(default_factory=list)
    wrong_ends: list[str] = field(default_factory=list)
    sources: int = 0

    def p99_ms(self, seconds: float) -> float:
        """p99 latency of the calls that another client makes during this time."""
        measured = _ask(self.bystander, str(seconds))
        self.failures += measured["failures"]
        return float(np.quantile(measured["latencies_ms"], 0.99))

    def order(self, attack: Attack, port: int, rate: float, connections: int) -> dict[str, Any]:
        """The order for an attacker process. Every attacker has its own source address, because the server counts
        offences by address."""
        self.sources += 1
        rows = _UNREAD_ROWS if attack.kind is Kind.STALL else _ATTACKED_ROWS
        return {
            "attack": attack.name,
            "path": METHOD,
            "message": self.messages[rows].hex(),
            "host": "127.0.0.1",
            "port": port,
            "rate": rate / connections,
            "source": f"127.0.{self.sources // 250}.{2 + self.sources % 250}",
            "connections": connections,
        }


def measure_hostile(gates: GatesBench, only: Sequence[str] = ()) -> None:
    """Measure all attacks, or with `only` those whose names contain one of its entries."""
    with _bench(gates) as bench, _Memory(bench.server) as memory:
        for attack in (attack for attack in (*FLOODS, *CALLS) if _is_wanted(attack, only)):
            for shown, rate in RATES.items():
                _measure_attack(bench, attack, shown, rate)
            gates.say(f"    memory grew by up to {memory.growth_mb:.0f} MB so far")
        if not only:
            _measure_stalls(bench, STALLS, MANY, bench.plan.stall_s)
        _add_ends(bench, memory, "")
    with _bench(gates, is_secured=True) as bench, _Memory(bench.server) as memory:
        for attack in (attack for attack in HANDSHAKES if _is_wanted(attack, only)):
            for shown, rate in RATES.items():
                if not (rate and attack.kind is Kind.HANDSHAKE):
                    _measure_attack(bench, attack, shown, rate)
        if not only:
            _measure_stalls(bench, WAITING_HANDSHAKES, (), bench.plan.handshake_s)
        _add_ends(bench, memory, " with TLS")


def _add_ends(bench: HostileBench, memory: "_Memory", what: str) -> None:
    bench.figures.add(f"growth of the server's total memory{what}, MB", memory.growth_mb, "<= 64")
    for failure, number in Counter(bench.failures).items():
        bench.figures.console.print(f"  the other client failed {number} times: {failure}", highlight=False)
    for wrong in bench.wrong_ends:
        bench.figures.console.print(f"  ended otherwise: {wrong}", highlight=False)
    bench.figures.add(f"attacks{what} that did not end as the table says", len(bench.wrong_ends), "== 0")
    bench.figures.add(f"failed calls of the other client{what}", len(bench.failures), "== 0")


def _is_wanted(attack: Attack, only: Sequence[str]) -> bool:
    return not only or any(word in attack.name for word in only)


@contextmanager
def _bench(gates: GatesBench, is_secured: bool = False) -> Iterator[HostileBench]:
    model, tls = gates.model, gates.tls if is_secured else None

    def message(rows: int) -> bytes:
        return predict_call(model.rows(rows, seed=0).arguments(model.name)).request

    with ExitStack() as stack:
        options = [*_IDLE_OPTION, *(gates.server_options if is_secured else ())]
        server = stack.enter_context(gates.server(*options, tls=tls))
        sink = stack.enter_context(_process("sink"))
        assert sink.stdout is not None
        bystander = stack.enter_context(_process("bystander"))
        ca = str(gates.folder / CA) if is_secured else ""
        _tell(
            bystander,
            json.dumps({"address": server.address, "ca": ca, "path": METHOD, "message": message(_ROWS).hex()}),
        )
        messages = {rows: message(rows) for rows in (_ATTACKED_ROWS, _UNREAD_ROWS)}
        plan = QUICK if gates.plan is gates_bench.QUICK else FULL
        bench = HostileBench(server, int(sink.stdout.readline()), bystander, messages, gates.figures, plan)
        _warm(server, tls, messages[_ATTACKED_ROWS])
        bench.p99_ms(1.0)
        yield bench


def _warm(server: ServerProcess, tls: Tls | None, message: bytes) -> None:
    """Make as many simultaneous valid calls as the attackers' connections may have. Their memory is that of ordinary
    load, which --queue-rows limits, so it must not be counted as an attack's."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    credentials = None if tls is None else tls.credentials()
    with ExitStack() as stack:
        calls = []
        for _ in range(CONNECTIONS):
            if credentials is None:
                channel = stack.enter_context(grpc.insecure_channel(server.address, own))
            else:
                channel = stack.enter_context(grpc.secure_channel(server.address, credentials, own))
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
            calls += [call.future(message, timeout=30) for _ in range(_WARM_CALLS)]
        for answered in calls:
            answered.exception()  # calls that do not fit in the queue fail


def _measure_attack(bench: HostileBench, attack: Attack, shown: str, rate: float) -> None:
    # Hundreds of handshakes are allowed before the server refuses more.
    seconds = max(bench.plan.round_s, _HANDSHAKES_S) if attack.kind is Kind.HANDSHAKE else bench.plan.round_s
    baseline, _ = _beside(bench, [bench.order(attack, bench.sink_port, rate, CONNECTIONS)], seconds)
    order = bench.order(attack, bench.server.port, rate, CONNECTIONS)
    p99, (ended,) = _beside(bench, [order], seconds)
    _judge(bench, attack, shown, ended)
    _add(bench, f"{attack.name} ({attack.known_as}), {shown}", p99, baseline)


def _measure_stalls(bench: HostileBench, stalls: Sequence[Attack], many: Sequence[Attack], seconds: float) -> None:
    """Run all of them at once until the last deadline has passed."""
    orders = [bench.order(attack, bench.server.port, 0.0, STALLED_CONNECTIONS) for attack in stalls]
    orders += [bench.order(attack, bench.server.port, 0.0, MANY_CONNECTIONS) for attack in many]
    baseline = bench.p99_ms(bench.plan.round_s)
    p99, ended = _beside(bench, orders, seconds)
    for attack, how in zip((*stalls, *many), ended, strict=True):
        _judge(bench, attack, "", how)
    _add(bench, f"{len(orders)} attackers that wait, all at once", p99, baseline)


def _judge(bench: HostileBench, attack: Attack, shown: str, ended: Counter[str]) -> None:
    text = ", ".join(f"{how} x {number}" for how, number in ended.most_common(4)) or "not at all"
    bench.figures.console.print(f"  {attack.name} {shown} ended: {text}", highlight=False)
    if not attack.ends & set(ended):
        bench.wrong_ends.append(f"{attack.name}: {text}")


def _add(bench: HostileBench, name: str, p99_ms: float, baseline_ms: float) -> None:
    bound_ms = max(_MOST_TIMES * baseline_ms, _LEAST_BOUND_MS)
    bench.figures.add(f"{name}: p99 {p99_ms:.1f} ms, share of {bound_ms:.1f} ms", p99_ms / bound_ms, "<= 1")


def _beside(bench: HostileBench, orders: Sequence[dict[str, Any]], seconds: float) -> tuple[float, list[Counter[str]]]:
    """The other client's p99 while the attackers run, and how each attacker was ended."""
    with ExitStack() as stack:
        attackers = [stack.enter_context(_process("attacker")) for _ in orders]
        for attacker, order in zip(attackers, orders, strict=True):
            _tell(attacker, json.dumps(order))
        for attacker in attackers:
            assert attacker.stdout is not None
            attacker.stdout.readline()  # the attacker has started
        p99 = bench.p99_ms(seconds)
        return p99, [Counter(_ask(attacker, "stop")["ended"]) for attacker in attackers]


@contextmanager
def _process(name: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", f"loadtest.hostile.{name}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _ask(process: "subprocess.Popen[str]", line: str) -> dict[str, Any]:
    assert process.stdout is not None
    _tell(process, line)
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


class _Memory:
    """Samples the resident memory of a server's processes."""

    def __init__(self, server: ServerProcess) -> None:
        self._processes = [psutil.Process(pid) for pid in server.group.processes()]
        self._before = self._resident_mb()
        self.growth_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "_Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.05):
            self.growth_mb = max(self.growth_mb, self._resident_mb() - self._before)

    def _resident_mb(self) -> float:
        return float(sum(process.memory_info().rss for process in self._processes)) / MB
