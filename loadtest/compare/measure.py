"""Runs the comparison: the variants take turns in every round, so that a slow minute affects all of them equally."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from loadtest.compare.answers import Questions, ask_uncertainty
from loadtest.compare.cores import CoreSplit, on_cores
from loadtest.compare.engine_cost import measure_engine
from loadtest.compare.environment import describe_environment
from loadtest.compare.findings import Comparison, Measured
from loadtest.compare.rounds import Rounds, Settings
from loadtest.compare.servers import running_variant
from loadtest.compare.variants import Variant
from loadtest.report.wording import plural
from loadtest.workload import find_model

Say = Callable[[str], None]


def compare(
    variants: Sequence[Variant], settings: Settings, cores: CoreSplit, logs: Path, command: str, say: Say
) -> Comparison:
    began = time.monotonic()
    measured = {v.name: Measured(v.name, v.title, v.head, v.kind) for v in variants}
    found = Comparison(
        engine=settings.engine,
        candidates=settings.candidates,
        objective_ms=settings.objective_ms,
        server_cores=len(cores.server),
        command=command,
        settings={**asdict(settings), "shared_cores": cores.shared},
        environment=describe_environment(),
        measured=list(measured.values()),
    )
    rows = find_model(variants[0].repository, "")
    in_process = [variant for variant in variants if variant.kind != "triton-ensemble"]
    say(f"measuring the engine in this process, {settings.rounds} rounds")
    with on_cores(cores.server):
        feeds = rows.rows(settings.candidates, settings.seed).feeds()
        for name, times in measure_engine(in_process, feeds, settings.rounds, settings.engine_round_s).items():
            measured[name].engine_ms = times
    with ExitStack() as stack:
        say(f"starting {len(variants)} servers on {plural(len(cores.server), 'core')}")
        servers = [
            stack.enter_context(running_variant(variant, settings.engine, cores.server, logs)) for variant in variants
        ]
        questions = Questions.about(rows, settings.candidates)
        for server in servers:
            measured[server.variant.name].uncertainty = ask_uncertainty(server.address, server.variant.model, questions)
        rounds = Rounds(settings, cores, measured, servers, say)
        rounds.saturate()
        found.rates = rounds.curves()
        rounds.search()
        say("stopping the servers")
    found.elapsed_s = time.monotonic() - began
    return found
