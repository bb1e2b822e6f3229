"""Prices and demand as options of a command."""

from typing import Annotated

import typer

from loadtest.report.cost import Prices

DEFAULTS = Prices()

CoreHour = Annotated[float, typer.Option("--price-per-core-hour", help="$ for one core for one hour.")]
GbHour = Annotated[float, typer.Option("--price-per-gb-hour", help="$ for one GB of memory for one hour.")]
Peak = Annotated[float, typer.Option("--peak-rate", help="Requests per second that the fleet must answer.")]
Utilisation = Annotated[
    float, typer.Option("--utilisation", help="Share of the rate that holds the objective to plan a core with.")
]
