"""Shows a load in the terminal: live while it runs, as tables at the end."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from loadtest.generator.latencies import PERCENTILES, Latencies
from loadtest.generator.result import LoadResult
from loadtest.generator.run import LoadProgress
from loadtest.scenarios.overload import OverloadReport
from loadtest.scenarios.soak import SoakReport
from loadtest.scenarios.spike import SpikeReport

_LOG_EVERY_S = 10.0


@contextmanager
def live_progress(console: Console) -> Iterator[Callable[[LoadProgress], None]]:
    """Show rates and percentiles of the last interval and so far; without a terminal, print a line every few
    seconds."""
    if not console.is_terminal:
        yield _logger(console)
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield lambda progress: live.update(_progress_table(progress))


def _logger(console: Console) -> Callable[[LoadProgress], None]:
    last_s = -math.inf

    def log(progress: LoadProgress) -> None:
        nonlocal last_s
        if progress.last is None or progress.elapsed_s < last_s + _LOG_EVERY_S:
            return
        last_s = progress.elapsed_s
        last, so_far = progress.last, progress.so_far
        console.print(
            f"{progress.elapsed_s:.0f} of {progress.measured_s:.0f} s: {last.goodput_per_s:,.0f} good responses/s, "
            f"p50 {milliseconds(last.p50_s)}, p99 {milliseconds(last.p99_s)} ms; {so_far.failed:,} failed so far",
            highlight=False,
        )

    return log


def _progress_table(progress: LoadProgress) -> Table:
    so_far, last = progress.so_far, progress.last
    phase = "warm-up" if progress.elapsed_s < 0 else f"{progress.elapsed_s:.0f} of {progress.measured_s:.0f} s"
    table = Table(title=f"loading {so_far.plan.address}: {phase}", title_justify="left")
    for heading in ("", "good/s", "rejected", "failed", "p50 ms", "p99 ms", "worst ms"):
        table.add_column(heading, justify="right" if heading else "left")
    if last is not None:
        table.add_row(
            "now",
            f"{last.goodput_per_s:,.0f}",
            f"{last.shed:,}",
            f"{last.failed:,}",
            milliseconds(last.p50_s),
            milliseconds(last.p99_s),
            milliseconds(last.worst_s),
        )
    latencies = [milliseconds(so_far.latency.percentile_s(p)) for p in (50, 99, 100)]
    table.add_row("so far", f"{so_far.goodput_per_s:,.0f}", f"{so_far.shed:,}", f"{so_far.failed:,}", *latencies)
    return table


def milliseconds(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{1000 * seconds:,.2f}"


def print_result(console: Console, result: LoadResult) -> None:
    rate = "" if math.isnan(result.intended_per_s) else f" of {result.intended_per_s:,.1f} scheduled"
    console.print(
        f"{result.sent:,} requests in {result.elapsed_s:.1f} s: {result.achieved_per_s:,.1f} sent/s{rate}, "
        f"{result.goodput_per_s:,.1f} good responses/s, {result.rows_per_s:,.0f} rows/s",
        highlight=False,
    )
    table = Table(title="latency, ms", title_justify="left")
    table.add_column("")
    for percentile in PERCENTILES:
        table.add_column("worst" if percentile == 100 else f"p{percentile:g}", justify="right")
    rows = {
        "from the scheduled send time": result.latency,
        "from the actual send time": result.service_latency,
        "of rejections": result.shed_latency,
        "delay of sending": result.lateness,
    }
    for name, latencies in rows.items():
        if latencies.count:
            table.add_row(name, *_percentiles(latencies))
    console.print(table)
    failures = {**result.errors, **{f"wrong response: {what}": count for what, count in result.check_failures.items()}}
    for name, count in sorted(failures.items()):
        console.print(f"{name}: {count:,}", style="red", highlight=False)
    versions = ", ".join(f"version {version}: {count:,}" for version, count in sorted(result.versions.items()))
    console.print(
        f"responses by {versions or 'no version'}; {result.checked:,} of them checked in full", highlight=False
    )
    cost_us = 1e6 * result.generator_cpu_per_request_s
    console.print(
        f"the generator used {result.generator_cpu_s:.2f} s of CPU, {cost_us:.0f} us per request", highlight=False
    )
    if result.interrupted:
        console.print("interrupted: results so far", style="yellow")


def _percentiles(latencies: Latencies) -> list[str]:
    return [milliseconds(latencies.percentile_s(percentile)) for percentile in PERCENTILES]


def print_overload(console: Console, report: OverloadReport) -> None:
    print_result(console, report.run)
    overloaded = report.overloaded
    console.print(
        f"peak {report.peaks}; at {overloaded.due / overloaded.seconds:,.0f}/s "
        f"{overloaded.goodput_per_s:,.0f}/s succeed ({report.goodput_share:.0%} of the peak), rejections within "
        f"{milliseconds(report.shed_p99_s)} ms at p99, recovered after {report.recovery_s:.2f} s",
        highlight=False,
    )


def print_spikes(console: Console, report: SpikeReport) -> None:
    print_result(console, report.run)
    table = Table(title="spikes", title_justify="left")
    for heading in ("at s", "offered/s", "good/s", "rejected", "failed", "worst ms", "recovered after s"):
        table.add_column(heading, justify="right")
    for spike in report.spikes:
        burst = spike.burst
        table.add_row(
            f"{spike.start_s:.0f}",
            f"{burst.due / burst.seconds:,.0f}",
            f"{burst.goodput_per_s:,.0f}",
            f"{burst.shed:,}",
            f"{burst.failed:,}",
            milliseconds(burst.worst_s),
            f"{spike.recovery_s:.2f}",
        )
    console.print(table)


def print_soak(console: Console, report: SoakReport) -> None:
    print_result(console, report.run)
    table = Table(title="growth after the first quarter of the run", title_justify="left")
    for heading in ("", "median", "growth", "at least", "bound", "ok"):
        table.add_column(heading, justify="right" if heading else "left")
    for each in report.drifts:
        median = f"{each.median:,.1f} MB" if each.name == "server memory" else f"{milliseconds(each.median)} ms"
        verdict = "[green]yes[/]" if each.ok else "[bold red]NO[/]"
        table.add_row(
            each.name, median, f"{each.growth:+.2%}", f"{each.least_growth:+.2%}", f"{each.bound:.0%}", verdict
        )
    console.print(table)
