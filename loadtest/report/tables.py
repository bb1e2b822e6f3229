"""The report's tables, as HTML."""

import statistics
from collections.abc import Iterator, Sequence
from html import escape

from loadtest.compare.findings import Comparison, Measured, Point, round_ratios
from loadtest.compare.variants import TITLES
from loadtest.report.cost import Prices, cpu_price_per_million_rows, memory_gb_s_per_million_rows, size_fleet

_NONE = "–"


def table(headings: Sequence[str], rows: Sequence[tuple[bool, Sequence[str]]]) -> str:
    """An HTML table; each row is a flag, which highlights the row, and its cells."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr{' class=lead' if lead else ''}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for lead, cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def ordered(comparison: Comparison) -> Iterator[Measured]:
    """Results by head, then in the order of TITLES."""
    for head in comparison.heads:
        for kind in TITLES:
            measured = comparison.of(head, kind)
            if measured is not None:
                yield measured


def advantage(comparison: Comparison, measured: Measured, on_engine: bool = False) -> float | None:
    """Throughput of the VBLL variant with the same head divided by that of `measured`, median over rounds."""
    rounds = advantage_by_round(comparison, measured, on_engine)
    return statistics.median(rounds) if rounds else None


def advantage_by_round(comparison: Comparison, measured: Measured, on_engine: bool = False) -> list[float]:
    """The ratio of `advantage` for each round; empty if one of the two variants was not measured."""
    vbll = comparison.of(measured.head, "vbll")
    if vbll is None:
        return []
    if on_engine:
        return round_ratios(measured.engine_ms, vbll.engine_ms) if measured.engine_ms and vbll.engine_ms else []
    return round_ratios(vbll.saturated_per_s, measured.saturated_per_s)


def throughput_table(comparison: Comparison) -> str:
    rows = []
    for each in ordered(comparison):
        best = min(each.engine_ms, default=None)
        cells = [
            each.title,
            _NONE if best is None else f"{best:.2f}",
            _times(advantage(comparison, each, on_engine=True)),
            f"{each.throughput_per_s:,.0f}",
            f"{min(each.saturated_per_s):,.0f} to {max(each.saturated_per_s):,.0f}",
            f"{each.throughput_per_s * comparison.candidates:,.0f}",
            _times(advantage(comparison, each)),
        ]
        rows.append((each.kind == "vbll", cells))
    headings = ("", "engine, ms per call", "VBLL on the engine", "requests/s", "rounds", "rows/s", "VBLL end to end")
    return table(headings, rows)


def latency_table(comparison: Comparison) -> str:
    """p50 and p99 at the offered rates, up to the limit of each variant."""
    rates = comparison.rates
    rows = []
    for each in ordered(comparison):
        at = {point.rate_per_s: point for point in each.points}
        rows.append((each.kind == "vbll", [each.title, *(_latency(at.get(rate)) for rate in rates)]))
    return table(["p50 / p99, ms", *(f"{rate:,.0f}/s" for rate in rates)], rows)


def fleet_table(comparison: Comparison, prices: Prices) -> str:
    rows = []
    for each in ordered(comparison):
        fleet = size_fleet(each, comparison, prices)
        sized = [f"{fleet.cores:,}", f"{fleet.memory_gb:,.0f}", f"{fleet.per_month:,.0f}"] if fleet else [_NONE] * 3
        cells = [
            each.title,
            f"{each.rate_at_objective:,.0f}" if each.rate_at_objective else "none",
            *sized,
            f"{1000 * cpu_price_per_million_rows(each, prices):.3f}",
        ]
        rows.append((each.kind == "vbll", cells))
    objective = f"requests/s at p99 <= {comparison.objective_ms:g} ms"
    return table(("", objective, "cores", "memory, GB", "$ per month", "$ of CPU per billion rows"), rows)


def resources_table(comparison: Comparison) -> str:
    rows = []
    for each in ordered(comparison):
        batch = sum(each.batch_rows) / len(each.batch_rows) if each.batch_rows else None
        cells = [
            each.title,
            f"{each.cpu_s:.2f}",
            f"{each.resident_mb:,.0f}",
            f"{memory_gb_s_per_million_rows(each, comparison.candidates):.2f}",
            _NONE if batch is None else f"{batch:,.0f}",
            f"{each.answer_bytes / 1000:.1f}",
        ]
        rows.append((each.kind == "vbll", cells))
    headings = ("", "CPU s per million rows", "memory, MB", "GB s per million rows", "rows per batch", "response, kB")
    return table(headings, rows)


def uncertainty_table(comparison: Comparison) -> str:
    rows = []
    for each in ordered(comparison):
        said = each.uncertainty
        if said is None:
            continue
        grows = said.epistemic_unknown / said.epistemic_known if said.epistemic_known else None
        cells = [
            each.title,
            *(f"{value:.4f}" for value in (said.aleatoric_known, said.aleatoric_unknown)),
            *(f"{value:.6f}" for value in (said.epistemic_known, said.epistemic_unknown)),
            _times(grows),
        ]
        rows.append((each.kind == "vbll", cells))
    headings = ("variances", "aleatoric, known ids", "unknown ids", "epistemic, known ids", "unknown ids", "ratio")
    return table(headings, rows)


def _times(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}x"


def _latency(point: Point | None) -> str:
    return _NONE if point is None else f"{point.p50_ms:.1f} / {point.p99_ms:.1f}"
