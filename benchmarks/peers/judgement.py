"""The figures of `ghostless bench peers`, with their bounds: medians over rounds of ratios taken within a round."""

from collections.abc import Callable, Sequence
from statistics import median

from rich.table import Table

from benchmarks.peers.rounds import MEAN_ONLY_ROWS, SIZES, Measured
from benchmarks.peers.servers import GHOSTLESS, GRPC_SERVERS, TRITON, UVICORN, Peer
from loadtest.figures import Figures

# Maximum CPU of a request, as a multiple of bare ONNX Runtime, by number of rows.
_MOST_TIMES_BARE = {256: "<= 1.22", 1000: "<= 1.08"}
_MOST_OVER_BARE_MS = {1: "<= 0.12"}
_MOST_OF_ALL_OUTPUTS = "<= 0.75"
# Requests/s relative to a peer, and the peer's p99 relative to this server's.
_LEAST_AHEAD: dict[Peer, str] = {UVICORN: ">= 0.98", **dict.fromkeys(GRPC_SERVERS, ">= 1.15"), TRITON: ">= 1.5"}


def judge_overhead(figures: Figures, measured: Sequence[Measured]) -> None:
    for size, bound in _MOST_TIMES_BARE.items():
        ratios = [each.cpu_ms(GHOSTLESS, size) / each.bare_cpu_ms(size) for each in measured]
        figures.add(f"{size} rows: CPU per request / bare ONNX Runtime", median(ratios), bound, samples=ratios)
    for size, bound in _MOST_OVER_BARE_MS.items():
        over = overhead_ms(measured, size)
        figures.add(f"{size} row: CPU per request above bare ONNX Runtime, ms", median(over), bound, samples=over)


def judge_present(figures: Figures, present: Sequence[Measured], reference: Sequence[Measured]) -> None:
    """The graph has changed since the reference; the cost around it must not grow."""
    for size in SIZES:
        over = overhead_ms(present, size)
        bound = f"<= {median(overhead_ms(reference, size)):.4f}"
        figures.add(
            f"current graph, {size} rows: CPU per request above bare ONNX Runtime, ms",
            median(over),
            bound,
            samples=over,
        )


def judge_mean_only(figures: Figures, measured: Sequence[Measured]) -> None:
    ratios = [each.mean_only_cpu_ms / each.cpu_ms(GHOSTLESS, MEAN_ONLY_ROWS) for each in measured]
    name = f"{MEAN_ONLY_ROWS} rows: CPU of a request for the mean only over that of all outputs"
    figures.add(name, median(ratios), _MOST_OF_ALL_OUTPUTS, samples=ratios)


def judge_peers(figures: Figures, peers: Sequence[Peer], measured: Sequence[Measured]) -> None:
    for peer in peers:
        if peer not in _LEAST_AHEAD:
            continue
        for size in SIZES[1:]:
            pairs = [(each.samples[GHOSTLESS, size], each.samples[peer, size]) for each in measured]
            rates = [ours.requests_per_s / theirs.requests_per_s for ours, theirs in pairs]
            tails = [theirs.p99_s / ours.p99_s for ours, theirs in pairs]
            bound = _LEAST_AHEAD[peer]
            figures.add(f"{size} rows: requests/s / {peer.name}", median(rates), bound, samples=rates)
            figures.add(f"{size} rows: p99 of {peer.name} / this server", median(tails), bound, samples=tails)


def overhead_ms(measured: Sequence[Measured], size: int) -> list[float]:
    return [each.cpu_ms(GHOSTLESS, size) - each.bare_cpu_ms(size) for each in measured]


def table(title: str, peers: Sequence[Peer], best: dict[tuple[Peer, int], int], measured: Sequence[Measured]) -> Table:
    """Medians over the rounds, for each number of rows."""

    def row(of: Callable[[Measured, int], float], form: str) -> str:
        return " / ".join(format(median(of(each, size) for each in measured), form) for size in SIZES)

    heading = " / ".join(f"{size:,}" for size in SIZES)
    made = Table("server", "processes", "CPU ms a request", "requests/s", "share of bare", "p99 ms", title=title)
    made.add_row("", heading, heading, heading, heading, heading, style="dim")
    rate = row(lambda each, size: each.bare[size].runs_per_s, ",.0f")
    made.add_row("bare ONNX Runtime", "2", row(Measured.bare_cpu_ms, ".3f"), rate, "1", "")
    for peer in peers:
        made.add_row(
            peer.name,
            " / ".join(str(best[peer, size]) for size in SIZES),
            row(lambda each, size, peer=peer: each.cpu_ms(peer, size), ".3f"),  # type: ignore[misc]
            row(lambda each, size, peer=peer: each.samples[peer, size].requests_per_s, ",.0f"),  # type: ignore[misc]
            row(lambda each, size, peer=peer: each.share_of_bare(peer, size), ".2f"),  # type: ignore[misc]
            row(lambda each, size, peer=peer: 1e3 * each.samples[peer, size].p99_s, ".1f"),  # type: ignore[misc]
        )
    return made
