"""`ghostless bench learning`."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.learning import categorical, closed_forms, mixture, real_data, sampling, toy
from benchmarks.learning.runs import Runs
from loadtest.figures import Figures


def bench(
    data: Annotated[
        Path | None, typer.Option(envvar="GHOSTLESS_DATA", help="Folder with kuairand_pure and ncr_uber.")
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer seeds and draws, with the same bounds.")] = False,
    pictures: Annotated[Path | None, typer.Option(help="Write plots as PNG files to this directory.")] = None,
) -> None:
    """Check closed forms against quadrature and sampling, accuracy on real data, and uncertainty far from the data."""
    # Check the folder first, before hours of measurement.
    sources = None if data is None else (real_data.kuairand(data), real_data.uber(data))
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    figures = Figures("ghostless bench learning")
    runs = Runs(figures.console)
    figures.console.rule("closed forms")
    closed_forms.measure_laplace(figures)
    closed_forms.measure_kl(figures)
    mixture.measure_mixture(figures)
    categorical.measure_exact(figures)
    figures.console.rule("CR against posterior draws")
    sampling.measure_sampling(figures, rows=1 if quick else 3)
    figures.console.rule("far from the data")
    toy.measure_toy(runs, figures, pictures)
    figures.console.rule("real data")
    if sources is None:
        figures.skip("accuracy on KuaiRand and Uber", real_data.NOT_GIVEN)
    else:
        kuairand, uber = sources
        real_data.measure_kuairand(runs, figures, kuairand, seeds=1 if quick else 3, pictures=pictures)
        real_data.measure_uber(runs, figures, uber)
    real_data.measure_demo(runs, figures)
    real_data.measure_spectral_bound(runs, figures)
    figures.finish(json_path)
