"""CPU time per request that TLS, and identities on top of it, cost the server, compared with plain text in the same
rounds."""

import statistics
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.gates.gates_bench import GatesBench, identity
from loadtest.h2load import Generator
from loadtest.server_process import ServerProcess

ROWS = 256
CONCURRENCY = 8
# Identities besides the one that calls, each with tokens in the table.
_OTHERS = 100


@dataclass
class _Side:
    server: ServerProcess
    load: Generator

    def cpu_per_request_us(self, requests: int) -> float:
        before = self.server.group.cpu_s()
        self.load.requests(self.server.address, CONCURRENCY, requests)
        return 1e6 * (self.server.group.cpu_s() - before) / requests


def measure_cost(bench: GatesBench) -> None:
    bench.say(
        f"CPU per request at {ROWS} rows: plain text, TLS, TLS with identities and limits; {bench.plan.rounds} rounds"
    )
    text, token = identity("caller", 'calls = ["predict", "read"]', "rows_per_s = 1e9", "concurrent_rows = 1e9")
    others = "".join(identity(f"other-{index}", 'calls = ["predict"]')[0] for index in range(_OTHERS))
    file = bench.write_identities("cost.toml", text + others)
    with ExitStack() as stack:
        plain = stack.enter_context(bench.server())
        secured = stack.enter_context(bench.server(*bench.server_options, tls=bench.tls))
        known = stack.enter_context(bench.server(*bench.server_options, "--identities", str(file), tls=bench.tls))
        sides = (
            _Side(plain, bench.generator(plain.address, ROWS)),
            _Side(secured, bench.generator(secured.address, ROWS, bench.tls)),
            _Side(known, bench.generator(known.address, ROWS, bench.tls, token)),
        )
        for side in sides:
            side.cpu_per_request_us(bench.plan.round_requests)  # warm
        tls_ratios, identity_ratios = [], []
        costs: list[list[float]] = [[], [], []]
        for number in range(bench.plan.rounds):
            order = [(index + number) % 3 for index in range(3)]
            for index in order:
                costs[index].append(sides[index].cpu_per_request_us(bench.plan.round_requests))
            tls_ratios.append(costs[1][-1] / costs[0][-1])
            identity_ratios.append(costs[2][-1] / costs[1][-1])
    bench.say("  median us: " + ", ".join(f"{statistics.median(each):.0f}" for each in costs))
    name = f"CPU per request at {ROWS} rows"
    bench.figures.add(f"{name}: TLS over plain text", statistics.median(tls_ratios), "<= 1.10", samples=tls_ratios)
    bench.figures.add(
        f"{name}: identities and limits over none, with TLS",
        statistics.median(identity_ratios),
        "<= 1.02",
        samples=identity_ratios,
    )
