"""`ghostless bench truth`."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.truth import other_tables, real_data, synthetic, units
from benchmarks.truth.product import Product
from benchmarks.truth.store import Store
from ghostless.contract.errors import ConfigError
from ghostless.heads.config import HeadName
from loadtest.figures import Figures

SPLITS = (0, 1, 2)
HEADS: tuple[HeadName, ...] = ("cr", "qr")
# Few enough that the six runs of the unit check take only a minute or two.
QUICK_UNIT_ROWS = 30_000


def bench(
    data: Annotated[
        Path | None,
        typer.Option(envvar="GHOSTLESS_DATA", help="Folder with kuairand_pure, kuairec_sample and ncr_uber."),
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use one data split and, where bounds allow, one head. About 10 minutes.")
    ] = False,
    tables: Annotated[
        list[Path] | None,
        typer.Option(
            "--table", help="Also evaluate this CSV or Parquet file, with its schema in a .toml file of the same name."
        ),
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder of finished training runs; an interrupted bench resumes from it.")
    ] = Path("bench/truth"),
) -> None:
    """Check calibration and accuracy of models trained with default options, on real and synthetic targets."""
    if data is None:
        raise ConfigError(
            "bench truth needs real data: set --data or GHOSTLESS_DATA to the folder with "
            "kuairand_pure, kuairec_sample and ncr_uber (docs/data.md)"
        )
    figures = Figures("ghostless bench truth")
    product = Product(Store(work), figures.console)
    heads = HEADS[:1] if quick else HEADS
    sources = real_data.RealData.load(data, SPLITS[:1] if quick else SPLITS)
    figures.console.rule("LightGBM")
    rivals = real_data.fit_rivals(product, sources)
    figures.console.rule("real data")
    real_data.measure_kuairand(product, figures, sources)
    real_data.measure_kuairec(product, figures, sources)
    real_data.measure_uber(product, figures, sources)
    real_data.measure_rivals(product, figures, sources, rivals)
    for path in tables or []:
        other_tables.measure_table(product, figures, path)
    real_data.measure_twin(product, figures, sources, heads)
    if not quick:
        real_data.measure_ensemble(product, sources.kuairand[0])
    figures.console.rule("synthetic world and targets with known truth")
    synthetic.measure_world(product, figures)
    synthetic.measure_targets(product, figures, heads)
    figures.console.rule("units")
    first = sources.kuairand[0]
    units.measure_units(product, figures, units.some_rows(first, QUICK_UNIT_ROWS) if quick else first, HEADS)
    figures.finish(json_path)
