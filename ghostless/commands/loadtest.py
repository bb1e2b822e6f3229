"""`ghostless loadtest NAME`: each command is imported only when it is used."""

import typer

from ghostless.commands.main import Command, build

COMMANDS = (
    Command("run", "loadtest.commands:run", "Send load in an open or closed loop and check the responses.", "loadtest"),
    Command(
        "soak", "loadtest.commands:soak", "Check for memory and latency growth under long, steady load.", "loadtest"
    ),
    Command("spike", "loadtest.commands:spike", "Measure responses and recovery under bursts of load.", "loadtest"),
    Command(
        "overload",
        "loadtest.commands:overload",
        "Measure responses and recovery at twice the peak throughput.",
        "loadtest",
    ),
    Command(
        "compare",
        "loadtest.compare.command:compare",
        "Compare the serving cost of VBLL and 5x ensembles.",
        "loadtest,serve,train",
    ),
    Command("report", "loadtest.report.command:report", "Rewrite a comparison's report with other prices.", "loadtest"),
)


def app(argv: list[str]) -> typer.Typer:
    """The command group; only the command that `argv` names is imported."""
    return build(COMMANDS, argv, "Load-test a server.")
