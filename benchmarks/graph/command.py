"""The command: builds, verifies, times and profiles the graphs, and compares every figure with its bound."""

import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.graph import graphs, large, timing
from benchmarks.graph.graphs import Graph
from export import rows
from learning.data.encoding import Encoding
from learning.data.load import load
from loadtest.figures import Figures

ROWS = (1, 32, 256, 1024)
# Timed in turn. MC-dropout costs ten times as much and has no bound here, so it is timed separately and less often.
COMPARED = ("vbll", "deterministic", "paper", "bare", "ensemble")
SAMPLED = ("mc-dropout", "mc-dropout-fixed")
KINDS = COMPARED + SAMPLED


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option(help="Use fewer rounds and a smaller id table, with the same bounds.")] = False,
    base: Annotated[
        Path | None,
        typer.Option(help="model.onnx of an earlier version to compare with. Default: one stored with the tests."),
    ] = None,
    demo: Annotated[
        Path | None,
        typer.Option(help="model.onnx to compare with --base. Default: a demo model trained now."),
    ] = None,
) -> None:
    """Compare exported VBLL graphs with deterministic networks, 5x ensembles and MC-dropout: cost and exactness.

    Times batches of 1, 32, 256 and 1,024 rows on one thread in interleaved rounds, profiles each node, and measures
    peak memory and a model with 20 million ids.
    """
    figures = Figures("ghostless bench graph")
    console = figures.console
    with tempfile.TemporaryDirectory(prefix="ghostless-bench-") as directory:
        root = Path(directory)
        built = graphs.build_all(root, 20_000 if quick else 60_000, console)
        _exactness(figures, built)
        _against_base(figures, base or graphs.stored_demo(root), demo or graphs.demo(root), quick)
        for head in graphs.HEADS:
            _costs(figures, [graph for graph in built if graph.head == head], root, quick)
        _large(figures, root, 2_000_000 if quick else large.IDS)
    figures.finish(json_path)


def _against_base(figures: Figures, base: Path, demo: Path, quick: bool) -> None:
    """The demo of an earlier version and the current one, timed in turn in one process."""
    feed = rows.fed(rows.plausible(Encoding.fit(load(f"synthetic:{graphs.BASE_ROWS}")), 256, 0))
    times = timing.interleaved(timing.copies([base, demo]), feed, 8 if quick else 24)
    before, now = (f"{value:,.0f}" for value in timing.microseconds(times))
    figures.console.print(f"demo, 256 rows: {before} us at {base}, {now} us now", highlight=False)
    ratios = timing.ratios(times, 1, 0)
    figures.add("demo / demo of the base commit, 256 rows", median(ratios), "<= 1.15", samples=ratios)


def _exactness(figures: Figures, built: list[Graph]) -> None:
    """From each export's verification: 10,000 random rows, extreme rows, a row alone compared with a batch of 4,096."""
    for graph in built:
        if graph.report is None:
            continue
        checks, error = graph.report.checks, graph.report.largest_error
        if error is not None:
            figures.add(f"{graph.head} {graph.kind}: largest relative error against torch", error, "<= 1e-4")
        for title, part, bound in (
            ("a row alone against a batch of 4096", "a row alone", "<= 1e-5"),
            ("values that are not finite", "not finite", "== 0"),
        ):
            values = [check.value for check in checks if part in check.name]
            # A graph that draws random masks has no exact result to compare with.
            if values:
                figures.add(f"{graph.head} {graph.kind}: {title}", max(values), bound)
        for check in checks:
            if "torch's dropout" in check.name:
                figures.add(f"{graph.head} {graph.kind}: {check.name}", check.value, f"<= {check.bound:g}")
        if graph.kind == "vbll":
            table = Table("served value", "largest distance", "allowed", title=f"{graph.head}: served against sampling")
            for check in checks:
                if "posterior draws" in check.name:
                    table.add_row(check.name, f"{check.value:.5f}", f"{check.bound:.5f}")
                    figures.add(f"{graph.head} {check.name}", check.value, f"<= {check.bound:.6g}")
            figures.console.print(table)


def _costs(figures: Figures, built: list[Graph], root: Path, quick: bool) -> None:
    head = built[0].head
    by_kind = {graph.kind: graph for graph in built}
    compared, sampled = (timing.copies([by_kind[kind].path for kind in kinds]) for kinds in (COMPARED, SAMPLED))
    vbll, deterministic, paper, bare, ensemble = range(len(COMPARED))
    encoding = Encoding.fit(load("synthetic:20000"))
    table = Table(
        "rows", *KINDS, "to deterministic", "paper to bare", "ensemble to it", title=f"{head}: us a call, one thread"
    )
    for count in ROWS:
        feed = rows.fed(rows.plausible(encoding, count, 0))
        times = timing.interleaved(compared, feed, 8 if quick else 24)
        beside = timing.interleaved(sampled, feed, 1 if quick else 2)
        ratios = [timing.ratios(times, *pair) for pair in ((vbll, deterministic), (paper, bare), (ensemble, vbll))]
        medians = (f"{value:,.0f}" for value in timing.microseconds(times) + timing.microseconds(beside))
        table.add_row(f"{count:,}", *medians, *(f"{median(copies):.2f}" for copies in ratios))
        for name, bound, copies in (
            ("VBLL / deterministic with the same outputs, 256 rows", "<= 1.15", ratios[0]),
            ("fused 5x ensemble / VBLL, 256 rows", ">= 4.0", ratios[2]),
            ("VBLL / deterministic, 1 row", "<= 2.0", ratios[0]),
        ):
            if name.endswith(f" {count} rows" if count > 1 else " 1 row"):
                figures.add(f"{head}: {name}", median(copies), bound, samples=copies)
        if count == 256:
            _profile(figures.console, by_kind["vbll"], timing.profile(by_kind["vbll"].path, feed, root))
    figures.console.print(table)
    feed = rows.fed(rows.plausible(encoding, 1024, 0))
    peaks = {kind: timing.memory_mb(by_kind[kind].path, feed)[0] for kind in KINDS}
    listed = ", ".join(f"{kind} {peak:.0f}" for kind, peak in peaks.items())
    figures.console.print(f"{head}: peak MB that the graph adds to a process, 1,024 rows: {listed}", highlight=False)


def _profile(console: Console, graph: Graph, nodes: list[tuple[str, str, float]]) -> None:
    table = Table("node", "operator", "us", title=f"{graph.head} vbll: the dearest of {len(nodes)} nodes")
    for name, operator, duration in nodes[:12]:
        table.add_row(name, operator, f"{duration:.0f}")
    console.print(table)


def _large(figures: Figures, root: Path, ids: int) -> None:
    figures.console.print(f"[dim]a table of {ids:,} ids, {large.WIDTH} wide[/]")
    result = large.measure(root, ids)
    figures.console.print(
        f"exported and verified in {result.export_s:.0f} s, {result.file_mb:,.0f} MB on disk; a fresh process loads it "
        f"in {result.load_s:.1f} s, which with one call of 256 rows adds {result.peak_mb:,.0f} MB to its peak"
    )
    figures.add(f"{ids:,}-row id table: largest relative error against torch", result.error, "<= 1e-4")
