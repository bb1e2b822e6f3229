"""Prices and demand as options of a command."""

from typing import Annotated

import typer

from loadtest.report.cost import Prices

DEFAULTS = Prices()

CoreHour = Annotated[float, typer.Option("--price-per-core-hour", help="Price in $ of one CPU core for one hour.")]
GbHour = Annotated[float, typer.Option("--price-per-gb-hour", help="Price in $ of one GB of memory for one hour.")]
Peak = Annotated[float, typer.Option("--peak-rate", help="Peak requests per second that the fleet is sized for.")]
Utilisation = Annotated[
    float,
    typer.Option("--utilisation", help="Planned load as a fraction of the highest rate within the latency objective."),
]
