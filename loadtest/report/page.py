"""The report as one self-contained HTML file with style, charts and tables."""

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
    where = "on separate cores" if not comparison.settings.get("shared_cores") else "on the same core"
    values = {
        "title": "One forward pass or five: the cost of serving uncertainty",
        "subtitle": f"{comparison.candidates} candidates per request, all outputs, {comparison.engine} engine, "
        f"server on {plural(comparison.server_cores, 'core')}, load generator {where}; "
        f"{plural(comparison.settings['rounds'], 'round')} in which all variants took turns",
        "tiles": _tiles(comparison),
        "throughput_text": "Requests per second at saturation (a closed loop), and the time of one call on the engine "
        "alone. Ratios are computed within each round; the median over rounds is shown.",
        "latency_text": "Measured in an open loop: requests arrive at random (Poisson) whether or not earlier ones "
        "were answered, and latency is measured from the scheduled send time.",
        "fleet_text": f"Cores and memory for a peak of {prices.peak_per_s:,.0f} requests/s, with each core at "
        f"{prices.utilisation:.0%} of the highest rate that kept p99 within {comparison.objective_ms:g} ms, at "
        f"${prices.core_hour:g} per core-hour and ${prices.gb_hour:g} per GB-hour.",
        "resources_text": "CPU time and memory of all processes of the server at saturation.",
        "uncertainty_text": "All variants got the same requests, once with ids from the training data and once with "
        "unknown ids. Variances are means over all rows, in target units squared. More data would reduce the epistemic "
        "part, so it should be larger for unknown ids.",
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
            ("ensemble", "the throughput of a fused 5x ensemble"),
            ("mc-dropout", "the throughput of MC-dropout"),
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
    facts["responses that failed a check"] = str(failures)
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
