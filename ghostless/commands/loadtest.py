"""`ghostless loadtest NAME`: each command is imported only when it is asked for."""

import typer

from ghostless.commands.main import Command, build

COMMANDS = (
    Command(
        "run", "loadtest.commands:run", "Load a server in an open or closed loop and check its answers.", "loadtest"
    ),
    Command("soak", "loadtest.commands:soak", "Hours of steady load: do memory or latency creep up?", "loadtest"),
    Command("spike", "loadtest.commands:spike", "Bursts of many times the usual load, and the recovery.", "loadtest"),
    Command("overload", "loadtest.commands:overload", "Twice what the server can do, and the recovery.", "loadtest"),
    Command(
        "compare", "loadtest.compare.command:compare", "VBLL against 5x ensembles: the report.", "loadtest,serve,train"
    ),
    Command("report", "loadtest.report.command:report", "Another report of an earlier comparison.", "loadtest"),
)


def app(argv: list[str]) -> typer.Typer:
    """The group, with the command that `argv` names imported."""
    return build(COMMANDS, argv, "Load on a running server.")
