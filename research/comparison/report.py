"""A comparison as Markdown and CSV."""

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from learning.config import DECAY_ROWS
from learning.errors import DataError
from research.comparison.ablations import AblationResult
from research.comparison.claims import claims
from research.comparison.methods import METHODS, Setting
from research.comparison.paper import BESIDE
from research.comparison.results import MethodResult
from research.comparison.table import Row

QUALITY = {"nll": "NLL", "crps": "CRPS", "ece": "ECE", "rmse": "RMSE"}
# The settings that are tried first for all methods.
COMMON = METHODS[0].grid()
COST = ("training, CPU s", "256 rows, CPU ms")


def table_markdown(rows: Sequence[Row], data: str) -> str:
    """Quality and cost, with the paper's NLL; the lowest NLL and CRPS of each family are bold."""
    present = [row for row in rows if row.runs]
    name, paper = BESIDE.get(data, ("", {}))
    headings = ["method", *QUALITY.values(), "90% covers", *COST, "seeds", *([f"paper's NLL, {name}"] if paper else [])]
    lines = []
    for row in present:
        cells = [row.label, *_quality(row, [other for other in present if other.method.family == row.method.family])]
        cells += [f"{row.mean('coverage_90'):.3f}", *_cost(row), str(len(row.runs))]
        beside = f"{paper[row.method.name][0]:.4f}" if row.method.name in paper else ""
        lines.append([*cells, *([beside] if paper else [])])
    return markdown(headings, lines)


def claims_markdown(rows: Sequence[Row]) -> str:
    lines = [
        [claim.text, f"{claim.ratio:.4f}", f"{claim.bound:g}", "yes" if claim.holds else "**no**"]
        for claim in claims(rows)
    ]
    return markdown(["claim", "ratio", "at most", "holds"], lines)


def tuning_markdown(rows: Sequence[Row]) -> str:
    """The settings tried, with their validation NLL; the chosen one is bold."""
    lines: list[list[str]] = []
    common = [f"rate {setting['learning_rate']:g}, decay {_decay(setting)}" for setting in COMMON]
    for row in rows:
        if not row.tuned.tried or row.method.knob is None:
            continue
        knob, values = row.method.knob
        cells = [f"**{_nll(nll)}**" if setting == row.tuned.setting else _nll(nll) for setting, nll in row.tuned.tried]
        lines.append([row.label, *cells[: len(COMMON)], f"{knob} {', '.join(map('{:g}'.format, values))}"])
        lines[-1] += cells[len(COMMON) :]
    return markdown(["validation NLL", *common, "then its own knob", "1.", "2."], lines)


def _decay(setting: Setting) -> str:
    decay = setting["embedding_decay"]
    return f"{DECAY_ROWS:g} / rows" if decay is None else f"{decay:g}"


def ablation_markdown(results: Sequence[AblationResult]) -> str:
    present = [result for result in results if result.runs]
    headings = ["variant", *QUALITY.values(), "last layer's epistemic", *COST]
    epistemic = {result.label: f"{result.mean('epistemic'):.6f}" for result in present}
    return markdown(headings, [[r.label, *_quality(r, []), epistemic[r.label], *_cost(r)] for r in present])


def curves_markdown(results: Sequence[AblationResult]) -> str:
    """NLL by epoch, as training rows / test rows."""
    drawn = [result for result in results if result.curve]
    epochs = [str(point["epoch"]) for point in drawn[0].curve] if drawn else []
    lines = [
        [result.label, *(f"{point['train']:.4f} / {point['test']:.4f}" for point in result.curve)] for result in drawn
    ]
    return markdown(["NLL, training / test rows, after epoch", *epochs], lines)


def markdown(headings: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_csv(results: Sequence[MethodResult], path: Path) -> None:
    """One row per run."""
    figures = sorted({name for result in results for run in result.runs for name in run})
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "seed", *figures])
        for result in results:
            for seed, run in enumerate(result.runs):
                writer.writerow([result.label, seed, *(run[name] for name in figures)])


def update_page(page: Path, block: str, text: str) -> None:
    """Replace the text between `<!-- results: BLOCK -->` and the next `<!-- end -->`."""
    content = page.read_text() if page.exists() else ""
    pattern = re.compile(rf"(<!-- results: {re.escape(block)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(content):
        raise DataError(
            f"{page} has no lines '<!-- results: {block} -->' and '<!-- end -->'; put them where it belongs"
        )
    page.write_text(pattern.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", content))


def _quality(result: MethodResult, rivals: Sequence[MethodResult]) -> list[str]:
    cells = []
    for figure in QUALITY:
        best = (
            figure in ("nll", "crps") and len(rivals) > 1 and result.mean(figure) <= min(r.mean(figure) for r in rivals)
        )
        cells.append(f"**{result.text(figure)}**" if best else result.text(figure))
    return cells


def _cost(result: MethodResult) -> list[str]:
    return [f"{result.mean('train_cpu_seconds'):.0f}", f"{result.mean('answer_ms'):.1f}"]


def _nll(value: float | None) -> str:
    """None if the run diverged or is missing."""
    return "none" if value is None else f"{value:.4f}"
