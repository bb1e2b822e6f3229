"""`ghostless loadtest report`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.errors import PlanError
from loadtest.report.cost import Prices
from loadtest.report.files import read_report, write_report
from loadtest.report.options import DEFAULTS, CoreHour, GbHour, Peak, Utilisation


def report(
    source: Annotated[Path, typer.Argument(help="A report.json from `ghostless loadtest compare`, or its directory.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory for the new report. Default: the directory of the source.")
    ] = None,
    core_hour: CoreHour = DEFAULTS.core_hour,
    gb_hour: GbHour = DEFAULTS.gb_hour,
    peak: Peak = DEFAULTS.peak_per_s,
    utilisation: Utilisation = DEFAULTS.utilisation,
) -> None:
    """Rewrite the report of an earlier comparison with other prices or another fleet size."""
    if not source.exists():
        raise PlanError(f"{source} does not exist; create it with `ghostless loadtest compare`")
    comparison = read_report(source)
    folder = out or (source if source.is_dir() else source.parent)
    page = write_report(comparison, Prices(core_hour, gb_hour, peak, utilisation), folder)
    Console(highlight=False, soft_wrap=True).print(f"wrote {page}")
