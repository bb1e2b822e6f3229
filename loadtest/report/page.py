"""The report as one HTML file: style, charts and tables inside, nothing to fetch."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template

from matplotlib.figure import Figure

from loadtest.compare.findings import Comparison
from loadtest.report import tables
from loadtest.report.charts import to_svg
from loadtest.report.cost import Prices
from loadtest.report.wording import plural

TEMPLATE = Path(__file__).with_name("page.html")


def render(comparison: Comparison, prices: Prices, figures: Mapping[str, Figure]) -> str:
    where = "on cores of its own" if not comparison.settings.get("shared_cores") else "on the same core"
    values = {
        "title": "One forward pass against five: what uncertainty costs to serve",
        "subtitle": f"{comparison.candidates} candidates a request, all outputs, {comparison.engine} engine, server on "
        f"{plural(comparison.server_cores, 'core')}, load generator {where}; "
        f"{plural(comparison.settings['rounds'], 'round')} in which all variants took turns",
        "tiles": _tiles(comparison),
        "throughput_text": "Requests that a server answers when it never waits for work (a closed loop), and what one "
        "call costs on the engine alone. Ratios are medians over rounds, each taken within its round.",
        "latency_text": "An open loop: requests arrive at random (Poisson) whether or not earlier ones were answered, "
        "and latency counts from the moment a request was due.",
        "fleet_text": f"Cores and memory that answer {prices.peak_per_s:,.0f} requests/s at the peak, each core at "
        f"{prices.utilisation:.0%} of the highest rate that held p99 within {comparison.objective_ms:g} ms, at "
        f"${prices.core_hour:g} a core-hour and ${prices.gb_hour:g} a GB-hour.",
        "resources_text": "CPU time and memory of all the server's processes at saturation.",
        "uncertainty_text": "The same requests to all variants, once with ids that training saw and once with ids that "
        "it did not; means over all rows, in target units squared. Epistemic is what more data would take away: one "
        "that does not raise it for strangers is fast because it is silent.",
        "throughput_table": tables.throughput_table(comparison),
        "latency_table": tables.latency_table(comparison),
        "fleet_table": tables.fleet_table(comparison, prices),
        "resources_table": tables.resources_table(comparison),
        "uncertainty_table": tables.uncertainty_table(comparison),
        "environment": _environment(comparison),
        "command": escape(comparison.command),
        **{name: to_svg(figure) for name, figure in figures.items()},
    }
    return Template(TEMPLATE.read_text()).substitute(values)


def _tiles(comparison: Comparison) -> str:
    tiles = []
    for head in comparison.heads:
        for kind, text in (
            ("ensemble", "the requests of a fused 5x ensemble"),
            ("mc-dropout", "the requests of MC-dropout"),
        ):
            other = comparison.of(head, kind)  # type: ignore[arg-type]  # a Kind
            times = tables.advantage(comparison, other) if other else None
            if times is not None:
                tiles.append(f"<div class=tile><b>{times:.1f}x</b><span>{head.upper()}-VBLL: {text}</span></div>")
    return "".join(tiles)


def _environment(comparison: Comparison) -> str:
    facts = dict(comparison.environment)
    facts["measured in"] = f"{comparison.elapsed_s:.0f} s"
    facts["settings"] = ", ".join(f"{name} {value}" for name, value in comparison.settings.items())
    failures = sum(sum(each.check_failures.values()) for each in comparison.measured)
    facts["answers that failed a check"] = str(failures)
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
