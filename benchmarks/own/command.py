"""`ghostless bench own`."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.own import post_hoc, trained
from benchmarks.truth.parts import split_off
from learning.data.synthetic import DEMO_ROWS, SyntheticVideos
from loadtest.figures import Figures

QUICK_ROWS = 40_000


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use 40,000 rows instead of 120,000, with the same bounds.")
    ] = False,
    only: Annotated[str, typer.Option(help="Measure one part: trained or post-hoc. Default: both.")] = "",
) -> None:
    """Train, export and judge rankers that are not ours, and fit heads to rankers that were trained without them."""
    figures = Figures("ghostless bench own")
    rows = SyntheticVideos(seed=0).sample(QUICK_ROWS if quick else DEMO_ROWS, seed=0)
    parts = split_off("Synthetic world", rows, seed=0)
    with tempfile.TemporaryDirectory(prefix="ghostless-bench-") as directory:
        if only in ("", "trained"):
            figures.console.rule("rankers trained under our heads")
            trained.measure(figures, parts, Path(directory))
        if only in ("", "post-hoc"):
            figures.console.rule("heads fitted to trained rankers")
            post_hoc.measure(figures, parts, Path(directory))
    figures.finish(json_path)
