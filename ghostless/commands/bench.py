"""`ghostless bench NAME`: the measurements behind the claims, gathered from the packages that own them."""

import typer

from ghostless.commands.main import Command, build

BENCHES = (
    Command("learning", "benchmarks.learning:bench", "Closed forms, quality on real data, uncertainty.", "learning"),
    Command("heads", "benchmarks.heads:bench", "--head auto and calibrated intervals on real data.", "learning"),
    Command("graph", "benchmarks.graph:bench", "Cost and exactness of the exported graphs.", "learning"),
    Command("serve", "benchmarks.serve:bench", "Throughput and latency of the facade on the embedded engine."),
    Command("triton", "benchmarks.triton.command:bench", "The facade before real Triton servers."),
    Command("load", "benchmarks.load.command:bench", "VBLL against 5x ensembles under load, and overload.", "learning"),
    Command("observability", "benchmarks.observability.command:bench", "Metrics, drift, alerts and their cost."),
    Command("compare", "benchmarks.compare:compare", "Compare two runs of a bench: what is worse beyond its error."),
    Command("interleave", "benchmarks.interleave:bench", "This checkout's server against another's, in turns."),
)


def app(argv: list[str]) -> typer.Typer:
    """The group, with the measurement that `argv` names imported."""
    return build(BENCHES, argv, "Each measurement prints its figures beside their bounds.")
