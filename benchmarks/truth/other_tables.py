"""Any table with a schema, evaluated like the three real sources: no default may be specific to those."""

from pathlib import Path

from benchmarks.truth.parts import split_off
from benchmarks.truth.product import Product
from benchmarks.truth.real_data import HEAD, add_ratios
from benchmarks.truth.rivals import measure_rival
from learning.data.load import load
from learning.data.table import concatenate
from loadtest.figures import Figures


def measure_table(product: Product, figures: Figures, path: Path) -> None:
    """Split 0: CRPS and RMSE relative to LightGBM, and coverage. The schema is next to the table, as NAME.toml."""
    dataset = load(str(path), path.with_suffix(".toml"))
    parts = split_off(path.stem, concatenate(list(dataset.batches(dataset.rows))), seed=0)
    rival = measure_rival(product.store, parts, product.console)
    run = product.run(parts, HEAD)
    add_ratios(figures, path.stem, [run], [rival])
    error = run.judgement.coverage_error()
    figures.add(f"{path.stem} {HEAD.upper()} coverage, points off, worst of 50/80/90%", error, "<= 2")
