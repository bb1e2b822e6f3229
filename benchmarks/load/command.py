"""`ghostless bench load`: one forward pass compared with five, the generator's own limit, and overload."""

import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import grpc
import typer

from benchmarks.load.generator_figures import generator_figures
from ghostless.client import Client
from ghostless.client.calls import predict_call
from ghostless.v1 import prediction_pb2 as pb
from ghostless.v1 import prediction_pb2_grpc as pb_grpc
from loadtest.compare.command import FULL, QUICK, progress_printer, run_comparison, summary
from loadtest.compare.cores import CoreSplit, on_cores, split_cores
from loadtest.compare.findings import Comparison
from loadtest.compare.variants import TITLES, VariantKind
from loadtest.figures import Figures
from loadtest.generator.plan import RequestMix
from loadtest.report.cost import Prices
from loadtest.report.files import write_report
from loadtest.report.tables import advantage_by_round
from loadtest.scenarios.overload import overload_figures, saturating_plan
from loadtest.server_process import running_server
from loadtest.workload import find_model

# Minimum throughput of VBLL relative to each variant with the same head; the bounds hold for both heads.
_ON_ENGINE: Mapping[VariantKind, float] = {"ensemble": 4.0}
_END_TO_END: Mapping[VariantKind, float] = {
    "ensemble": 3.5,
    "five-call": 4.0,
    "mc-dropout": 15.0,
    "deterministic": 0.75,
}
_OVERLOADED = "qr-vbll"


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds, with the same bounds.")] = False,
    report: Annotated[Path, typer.Option(help="Directory for the HTML report of the comparison.")] = Path("bench/load"),
) -> None:
    """Compare the throughput of VBLL, ensembles and MC-dropout under load.

    Also measures the load generator against a no-op server, and the server at twice its peak throughput.
    """
    figures = Figures("ghostless bench load")
    with tempfile.TemporaryDirectory(prefix="ghostless-load-") as directory:
        folder, began = Path(directory), time.monotonic()
        found = run_comparison(QUICK if quick else FULL, folder, 0, progress_printer(figures.console))
        write_report(found, Prices(), report)
        figures.add("time to train, export, measure and report, min", (time.monotonic() - began) / 60, "< 10")
        figures.console.print(summary(found, Prices()))
        compare_figures(figures, found)
        cores = split_cores()
        _generator(figures, found, folder, cores, 2.0 if quick else 5.0)
        _overload(figures, folder, cores, 15.0 if quick else 60.0)
    figures.finish(json_path)


def compare_figures(figures: Figures, found: Comparison) -> None:
    for where, bounds in (("on the engine", _ON_ENGINE), ("end to end", _END_TO_END)):
        for each in found.measured:
            rounds = advantage_by_round(found, each, on_engine=where == "on the engine")
            if each.kind == "vbll" or not rounds:
                continue
            times = statistics.median(rounds)
            name = f"throughput of {each.head.upper()}-VBLL / {TITLES[each.kind]}, {where}"
            bound = bounds.get(each.kind)
            if bound is not None:
                figures.add(name, times, f">= {bound:g}", samples=rounds)
            else:
                figures.console.print(f"  {name}: {times:.6g} (no bound)", highlight=False)
    wrong = sum(sum(each.check_failures.values()) for each in found.measured)
    figures.add("wrong responses under load", wrong, "== 0")


def _generator(figures: Figures, found: Comparison, folder: Path, cores: CoreSplit, seconds: float) -> None:
    """Compare the generator's limit with the throughput that the fastest variant would have on all cores."""
    fastest = max(found.measured, key=lambda each: each.throughput_per_s)
    root = folder / "models" / fastest.name
    everywhere = fastest.throughput_per_s * len(cores.server | cores.generator) / len(cores.server)
    model = find_model(root, "")
    with running_server(root) as server:
        with Client(server.address) as client:
            described = client.get_model(model.name)
        with grpc.insecure_channel(server.address) as channel:
            request = predict_call(model.rows(found.candidates, seed=0).arguments(model.name)).request
            stub = pb_grpc.PredictionServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            answer = stub.Predict(pb.PredictRequest.FromString(request)).SerializeToString()
    figures.console.print(
        f"load generator; the fastest variant is {fastest.title}, {everywhere:,.0f} requests/s on all cores"
    )
    generator_figures(figures, described, answer, everywhere, seconds=seconds)


def _overload(figures: Figures, folder: Path, cores: CoreSplit, seconds: float) -> None:
    figures.console.print(f"{_OVERLOADED} at twice its peak throughput, {seconds:g} s")
    with ExitStack() as stack:
        with on_cores(cores.server):
            server = stack.enter_context(running_server(folder / "models" / _OVERLOADED))
        with on_cores(cores.generator):
            overload_figures(figures, saturating_plan(server.address, RequestMix(model=_OVERLOADED)), seconds=seconds)
