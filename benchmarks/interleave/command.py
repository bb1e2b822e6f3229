"""`ghostless bench interleave OTHER_CHECKOUT`."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.compare import compare_runs, print_comparison, read_figures
from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from benchmarks.interleave.checkouts import Checkout, other_checkout, this_checkout
from benchmarks.interleave.rounds import Plan, Round, run_round
from benchmarks.turns import Sample
from loadtest.figures import Figures
from loadtest.h2load import find_h2load
from loadtest.server_process import BenchError

SIZES = (1, 256, 1000)


@dataclass(frozen=True)
class _Measure:
    """A quantity of a sample, the bound that gives its direction, and the bound of the ratio B / A."""

    name: str
    of: Callable[[Sample], float]
    direction: str
    bound: str | None


_MEASURES = (
    _Measure("CPU per request, us", lambda s: 1e6 * s.cpu_per_request_s, "< inf", "<= 1.03"),
    _Measure("requests/s", lambda s: s.requests_per_s, "> 0", ">= 0.95"),
    _Measure("p50, ms", lambda s: 1e3 * s.p50_s, "< inf", None),
    _Measure("p99, ms", lambda s: 1e3 * s.p99_s, "< inf", "<= 1.15"),
)


def bench(
    other: Annotated[
        Path, typer.Argument(metavar="OTHER_CHECKOUT", help="Folder of the other checkout (A); this checkout is B.")
    ],
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds; each one restarts both servers.")] = 7,
    slice_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds of load on one server before switching to the other.")
    ] = 0.5,
    slices: Annotated[
        int, typer.Option(min=1, help="Number of --slice-s slices per server, round and request size.")
    ] = 8,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the ratios B / A to this JSON file.")] = None,
    json_a: Annotated[Path, typer.Option(help="JSON file for the other checkout's figures.")] = Path("bench/a.json"),
    json_b: Annotated[Path, typer.Option(help="JSON file for this checkout's figures.")] = Path("bench/b.json"),
    repository: Annotated[Path, typer.Option(help="Model repository that both servers use.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
) -> None:
    """Compare the cost of a request on this checkout's server (B) and another checkout's (A), measured alternately.

    Both serve the same model with default settings, metrics on, under h2load with 8 connections and requests of 1, 256
    and 1000 rows. CPU is user and system time of all the server's processes. Fails if the median ratio over the
    rounds is worse by more than 3% for CPU per request, 5% for throughput or 15% for p99.
    """
    figures = Figures("ghostless bench interleave: B / A")
    console = figures.console
    served = find_or_make_model(repository, model, console)
    checkouts = other_checkout(other), this_checkout()
    console.print(f"A: {other} at {checkouts[0].commit}; B: this checkout at {checkouts[1].commit}", highlight=False)
    _check_versions(figures, *checkouts)
    plan, h2load = Plan(rounds, slice_s, slices, SIZES), find_h2load()
    measured: list[Round] = []
    for number in range(rounds):
        console.print(f"round {number + 1} of {rounds}", highlight=False)
        measured.append(run_round(checkouts, repository, served, h2load, plan, number, _teller(figures)))
    for side, path in enumerate((json_a, json_b)):
        _write(measured, side, checkouts[side], path)
    before, after = read_figures(json_a)[0], read_figures(json_b)[0]
    print_comparison(compare_runs(before, after, 0.03), (str(json_a), str(json_b)), console)
    _judge(figures, measured)
    figures.finish(json_path)


def _check_versions(figures: Figures, a: Checkout, b: Checkout) -> None:
    """Require equal versions, because a different ONNX Runtime would look like a difference of the servers."""
    for name in ("numpy", "onnxruntime", "grpcio", "protobuf"):
        if a.versions.get(name) != b.versions.get(name):
            raise BenchError(f"A has {name} {a.versions.get(name)}, B {b.versions.get(name)}; install the same version")
    figures.console.print(f"both: {', '.join(f'{k} {v}' for k, v in b.versions.items())}", highlight=False)


def _teller(figures: Figures) -> Callable[[int, Sample, Sample], None]:
    def tell(size: int, a: Sample, b: Sample) -> None:
        parts = (f"{m.name} {m.of(a):,.2f} and {m.of(b):,.2f} ({m.of(b) / m.of(a):.3f})" for m in _MEASURES)
        figures.console.print(f"  {size} rows: {'; '.join(parts)}", highlight=False, soft_wrap=True)

    return tell


def _write(measured: list[Round], side: int, checkout: Checkout, path: Path) -> None:
    figures = Figures(f"ghostless bench interleave: {'AB'[side]}")
    figures.console.quiet = True
    for size in SIZES:
        for measure in _MEASURES:
            samples = [measure.of(each.samples[size][side]) for each in measured]
            figures.add(f"{size} rows: {measure.name}", statistics.median(samples), measure.direction, samples=samples)
    figures.save(path, checkout.describe())


def _judge(figures: Figures, measured: list[Round]) -> None:
    """Add the median over rounds of the ratios B / A, each computed within a round."""
    for size in SIZES:
        for measure in _MEASURES:
            pairs = [each.samples[size] for each in measured]
            ratios = [measure.of(b) / measure.of(a) for a, b in pairs]
            name = f"{size} rows: {measure.name}, B / A"
            if measure.bound is not None:
                figures.add(name, statistics.median(ratios), measure.bound, samples=ratios)
    figures.add("responses that differ between A and B", sum(len(each.different) for each in measured), "== 0")
