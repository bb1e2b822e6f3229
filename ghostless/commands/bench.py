"""`ghostless bench NAME`: the measurements behind the claims."""

import typer

from ghostless.commands.main import Command, build

BENCHES = (
    Command("learning", "benchmarks.learning:bench", "Check closed forms, accuracy and uncertainty.", in_checkout=True),
    Command("truth", "benchmarks.truth:bench", "Check calibration and accuracy of default models.", in_checkout=True),
    Command(
        "heads", "benchmarks.heads:bench", "Check --head auto and interval coverage on real data.", in_checkout=True
    ),
    Command("graph", "benchmarks.graph:bench", "Measure cost and exactness of exported graphs.", in_checkout=True),
    Command("mutants", "benchmarks.mutants:bench", "Check that export catches wrong formulas.", in_checkout=True),
    Command(
        "serve",
        "benchmarks.serve:bench",
        "Measure the server with the embedded engine.",
        in_checkout=True,
    ),
    Command(
        "triton", "benchmarks.triton.command:bench", "Measure the server with real Triton servers.", in_checkout=True
    ),
    Command("load", "benchmarks.load.command:bench", "Compare VBLL and 5x ensembles under load.", in_checkout=True),
    Command("scores", "benchmarks.scores:bench", "Measure UCB and Thompson on the demo's rankings.", in_checkout=True),
    Command(
        "observability",
        "benchmarks.observability.command:bench",
        "Check metrics, drift alerts and their cost.",
        in_checkout=True,
    ),
    Command(
        "compare",
        "benchmarks.compare:compare",
        "Compare the figures of two runs of a bench.",
        in_checkout=True,
    ),
    Command(
        "interleave",
        "benchmarks.interleave:bench",
        "Compare this checkout's server with another's.",
        in_checkout=True,
    ),
    Command("peers", "benchmarks.peers:bench", "Compare a request's cost with other servers.", in_checkout=True),
    Command("gates", "benchmarks.gates.command:bench", "Check TLS, identities and hostile clients.", in_checkout=True),
    Command("own", "benchmarks.own:bench", "Check rankers that are not ours under our heads.", in_checkout=True),
    Command("console", "benchmarks.console:bench", "Check the console's cost and HTTP's answers.", in_checkout=True),
    Command("path", "benchmarks.path:bench", "Count the source files that one request runs.", in_checkout=True),
)


def app(argv: list[str]) -> typer.Typer:
    """The command group; only the bench that `argv` names is imported."""
    return build(BENCHES, argv, "Run the benchmarks and check each figure against its bound.")
