"""The report on disk: report.html, report.json and one PNG per plot."""

from pathlib import Path

from loadtest.compare.findings import Comparison
from loadtest.report import charts
from loadtest.report.cost import Prices
from loadtest.report.page import render

PAGE, DATA = "report.html", "report.json"


def write_report(comparison: Comparison, prices: Prices, folder: Path) -> Path:
    """Write the report; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DATA).write_text(comparison.dump())
    figures = charts.draw_all(comparison, prices)
    for name, figure in figures.items():
        charts.save_png(figure, folder / f"load_{name}.png")
    page = folder / PAGE
    page.write_text(render(comparison, prices, figures))
    return page


def read_report(file: Path) -> Comparison:
    """Read a report.json; `file` may also be its directory."""
    source = file / DATA if file.is_dir() else file
    return Comparison.parse(source.read_text(), source)
