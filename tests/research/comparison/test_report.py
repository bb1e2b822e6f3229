"""Tables, claims and pages from figures that are given by hand."""

from pathlib import Path

import pytest

from learning.errors import DataError
from research.comparison import report
from research.comparison.claims import claims
from research.comparison.methods import BY_NAME
from research.comparison.results import MethodResult
from research.comparison.table import Row, Tuned


def row(name: str, *nll: float) -> Row:
    rest = {"crps": 0.2, "ece": 0.01, "rmse": 0.4, "coverage_90": 0.9, "train_cpu_seconds": 10.0, "answer_ms": 1.0}
    method = BY_NAME[name]
    settings = [*method.grid(), *method.refined(method.grid()[2])]
    tried = tuple(zip(settings, (1.3, None, 1.27, 1.4, 1.25, 1.26), strict=False))
    return Row(method.label, tuple({"nll": value, **rest} for value in nll), method, Tuned(settings[-2], tried))


ROWS = [row("qr", 1.10, 1.30), row("cqr", 1.19), row("qr-mcd", 1.0), row("qr-vbll", 1.18), row("qr-ensemble", 1.15)]


def test_mean_and_deviation_over_seeds() -> None:
    assert MethodResult("x", ({"nll": 1.0}, {"nll": 2.0}, {"nll": 3.0})).text("nll", 2) == "2.00 ± 1.00"
    assert MethodResult("x", ({"nll": 1.0},)).text("nll") == "1.0000"


def test_the_table_shows_the_papers_figure_and_the_best_of_each_family() -> None:
    text = report.table_markdown(ROWS, "uber")
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    assert "1.2000 ± 0.1414" in lines["Vanilla QR"]
    assert "| 2.3728 |" in lines["Vanilla QR"]
    assert "**1.0000**" in lines["QR-MCD"]
    assert "**" not in lines["QR-Ensemble"]
    assert "paper's" not in report.table_markdown(ROWS, "rides")


def test_claims_compare_with_one_pass_methods_and_with_the_ensemble() -> None:
    """MC dropout is the best of the family here, but asks the network 25 times."""
    single, ensemble = claims(ROWS)
    assert single.ratio == pytest.approx(1.18 / 1.19)
    assert "CQR" in single.text
    assert single.holds
    assert ensemble.ratio == pytest.approx(1.18 / 1.15)
    assert not ensemble.holds
    assert "**no**" in report.claims_markdown(ROWS)


def test_tuning_shows_what_was_tried() -> None:
    text = report.tuning_markdown(ROWS)
    assert text.startswith("| validation NLL | rate 0.004, decay 250 / rows | rate 0.004, decay 0.01 | rate 0.002,")
    assert "| QR-VBLL | 1.3000 | none | 1.2700 | 1.4000 | beta 0.02, 1 | **1.2500** | 1.2600 |" in text
    assert "CQR" not in text, "CQR takes vanilla QR's networks"


def test_only_the_named_block_of_a_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results: uber -->\nold\n<!-- end -->\n<!-- results: b -->\nkept\n<!-- end -->\n")
    report.update_page(page, "uber", "new \\1 text")
    assert page.read_text() == (
        "before\n<!-- results: uber -->\n\nnew \\1 text\n<!-- end -->\n<!-- results: b -->\nkept\n<!-- end -->\n"
    )
    with pytest.raises(DataError, match="results: kuairec"):
        report.update_page(page, "kuairec", "new")


def test_csv_has_one_line_a_run(tmp_path: Path) -> None:
    report.write_csv(ROWS, tmp_path / "table.csv")
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert len(lines) == 1 + 6
    assert lines[0].startswith("name,seed,answer_ms")
    assert lines[2].startswith("Vanilla QR,1,1.0")
