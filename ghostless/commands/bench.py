"""`ghostless bench NAME`: the measurements behind the claims, gathered from the packages that own them."""

import typer

from ghostless.commands.main import Command, build

BENCHES = (
    Command(
        "learning", "benchmarks.learning:bench", "Closed forms, quality on real data, uncertainty.", in_checkout=True
    ),
    Command("truth", "benchmarks.truth:bench", "Are the default models' distributions true?", in_checkout=True),
    Command("heads", "benchmarks.heads:bench", "--head auto and calibrated intervals on real data.", in_checkout=True),
    Command("graph", "benchmarks.graph:bench", "Cost and exactness of the exported graphs.", in_checkout=True),
    Command("mutants", "benchmarks.mutants:bench", "Does an export see a wrong closed form?", in_checkout=True),
    Command(
        "serve",
        "benchmarks.serve:bench",
        "Throughput and latency of the facade on the embedded engine.",
        in_checkout=True,
    ),
    Command("triton", "benchmarks.triton.command:bench", "The facade before real Triton servers.", in_checkout=True),
    Command(
        "load", "benchmarks.load.command:bench", "VBLL against 5x ensembles under load, and overload.", in_checkout=True
    ),
    Command("scores", "benchmarks.scores:bench", "What UCB and Thompson do to the demo's rankings.", in_checkout=True),
    Command(
        "observability",
        "benchmarks.observability.command:bench",
        "Metrics, drift, alerts and their cost.",
        in_checkout=True,
    ),
    Command(
        "compare",
        "benchmarks.compare:compare",
        "Compare two runs of a bench: what is worse beyond its error.",
        in_checkout=True,
    ),
    Command(
        "interleave",
        "benchmarks.interleave:bench",
        "This checkout's server against another's, in turns.",
        in_checkout=True,
    ),
    Command("path", "benchmarks.path:bench", "Files that one request comes through.", in_checkout=True),
)


def app(argv: list[str]) -> typer.Typer:
    """The group, with the measurement that `argv` names imported."""
    return build(BENCHES, argv, "Each measurement prints its figures beside their bounds.")
