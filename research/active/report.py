"""Active-learning curves as Markdown, CSV and a chart."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ghostless.charts import COLOURS, DPI, MARKERS, TRUTH, style_axes
from research.active.curves import QUALITY, Curve, named
from research.active.setup import Setup

RANDOM, FULL = "random", "full"


def write(found: Sequence[Curve], setup: Setup, pool_rows: int, out: Path) -> list[Path]:
    """NAME.md, NAME.csv and active_NAME.png in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"{setup.name}-{setup.head}"
    files = [out / f"{name}.md", out / f"{name}.csv", out / f"active_{name}.png"]
    files[0].write_text(markdown(found, setup, pool_rows))
    write_csv(found, files[1])
    draw(found, files[2], f"{setup.name}, {setup.head.upper()}-VBLL")
    return files


def markdown(found: Sequence[Curve], setup: Setup, pool_rows: int) -> str:
    strategies = [curve for curve in found if curve.label != FULL]
    full = named(found, FULL)
    lines = [
        f"{setup.name}, {setup.head.upper()}-VBLL: a pool of {pool_rows:,} rows, labels from {setup.start:.0%} to "
        f"{setup.stop:.0%} of it, {_seeds(strategies)}.",
        "",
    ]
    for quality in ("nll", "crps"):
        lines += [*_over_labels(strategies, full, quality), ""]
    lines += [*_at_the_end(strategies), ""]
    lines += _savings(strategies, full)
    return "\n".join(lines) + "\n"


def _measured(found: Sequence[Curve]) -> dict[str, str]:
    """Measures of quality and their titles, without cold-start measures if there are no such rows."""
    return {name: title for name, title in QUALITY.items() if all(math.isfinite(c.mean(name)[-1]) for c in found)}


def _seeds(strategies: Sequence[Curve]) -> str:
    counts = sorted({curve.seeds for curve in strategies})
    return "1 seed" if counts == [1] else f"{' to '.join(map(str, counts))} seeds"


def _over_labels(strategies: Sequence[Curve], full: Curve | None, quality: str) -> list[str]:
    shares = [f"{share:.0%}" for share in strategies[0].share] if strategies else []
    lines = [_row([f"{QUALITY[quality]} by share of labels", *shares]), "|---" + "|---:" * len(shares) + "|"]
    for curve in strategies:
        lines.append(_row([curve.label, *(f"{value:.4f}" for value in curve.mean(quality))]))
    if full is not None:
        lines.append(_row(["all labels", *[""] * (len(shares) - 1), f"{full.mean(quality)[-1]:.4f}"]))
    return lines


def _at_the_end(strategies: Sequence[Curve]) -> list[str]:
    """The last step in full, with the rows labelled on the way and the cost of ranking the pool."""
    others = {name: title for name, title in _measured(strategies).items() if name != "nll"}
    headings = ["at the last step", "NLL", "NLL gain on random", *others.values()]
    headings += ["bought: epistemic", "aleatoric", "users", "CPU s to rank 10,000"]
    lines = [_row(headings), "|---" + "|---:" * (len(headings) - 1) + "|"]
    random = named(strategies, RANDOM)
    for curve in strategies:
        gain = ""
        if random is not None and curve is not random and random.seeds == curve.seeds:
            gain = _with_spread("{:+.4f}", *curve.gain(random, "nll"), curve.seeds)
        nll = _with_spread("{:.4f}", curve.mean("nll")[-1], curve.deviation("nll")[-1], curve.seeds)
        row = [curve.label, nll, gain]
        row += [f"{curve.mean(quality)[-1]:.4f}" for quality in others]
        row += [f"{curve.bought(f'chosen_{name}'):.2f}" for name in ("epistemic", "aleatoric", "users")]
        lines.append(_row([*row, f"{curve.scoring_seconds():.2f}"]))
    return lines


def _with_spread(form: str, value: float, spread: float, seeds: int) -> str:
    return form.format(value) + (f" ± {spread:.4f}" if seeds > 1 else "")


def _savings(strategies: Sequence[Curve], full: Curve | None) -> list[str]:
    random = named(strategies, RANDOM)
    if random is None:
        return []
    goals = {"random's last": (random.mean("nll")[-1], random.labels[-1])}
    if full is not None:
        goals["all labels'"] = (full.mean("nll")[-1], full.labels[-1])
    lines = [_row(["labels to reach NLL of", *goals]), "|---" + "|---:" * len(goals) + "|"]
    for curve in strategies:
        cells = []
        for target, labels in goals.values():
            needed = curve.labels_to_reach("nll", target)
            cells.append("not reached" if math.isnan(needed) else f"{needed:,.0f} ({needed / labels:.0%})")
        lines.append(_row([curve.label, *cells]))
    return lines


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def write_csv(found: Sequence[Curve], path: Path) -> None:
    """One row per strategy, seed and step."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = list(vars(found[0].steps[0][0])) if found else []
        writer.writerow(["strategy", "run", *names])
        for curve in found:
            for run, steps in enumerate(curve.steps):
                writer.writerows([curve.label, run, *vars(step).values()] for step in steps)


def draw(found: Sequence[Curve], path: Path, title: str) -> Figure:
    """Plot NLL, CRPS and (if there are such rows) cold-start NLL over labels, as means over seeds; dotted lines: all
    labels."""
    drawn = [quality for quality in ("nll", "crps", "cold_nll") if quality in _measured(found)]
    figure = Figure(figsize=(4.5 * len(drawn), 4.6), layout="constrained")
    panels = figure.subplots(1, len(drawn))
    strategies, full = [curve for curve in found if curve.label != FULL], named(found, FULL)
    for axes, quality in zip(panels, drawn, strict=True):
        heading = title if quality == "nll" else ""
        style_axes(axes, title=heading, xlabel="labelled rows", ylabel=QUALITY[quality])
        for index, curve in enumerate(strategies):
            is_random = curve.label == RANDOM
            axes.plot(
                curve.labels,
                curve.mean(quality),
                marker=MARKERS[index % len(MARKERS)],
                markersize=4,
                linestyle="--" if index >= len(COLOURS) else "-",
                color=TRUTH if is_random else COLOURS[index % len(COLOURS)],
                linewidth=2.2 if is_random else 1.3,
                label=curve.label,
                zorder=3 if is_random else 2,
            )
        if full is not None:
            axes.axhline(full.mean(quality)[-1], color="#888888", linestyle=":", label="all labels")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    panels[-1].legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=DPI)
    return figure
