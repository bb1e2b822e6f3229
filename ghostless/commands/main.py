"""The `ghostless` command. Each package implements its own sub-commands and is imported only when one is used.

It is part of the client's distribution, which has neither typer nor rich. Without them it says what to install.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ghostless
from ghostless.commands.import_path import ignore_working_folder
from ghostless.contract.errors import GhostlessError

if TYPE_CHECKING:
    import typer

SERVER = "ghostless-server"
SUMMARY = "Train, export and serve ranking models that predict full distributions with their uncertainty."
_PACKAGES = ("ghostless", "serving", "export", "learning", "loadtest", "research", "benchmarks")


@dataclass(frozen=True)
class Command:
    """A sub-command and its location, `module:attribute`. The attribute is a function or a typer.Typer or, if `nested`,
    a function that builds one from the arguments after the command. `extra` is the extra of ghostless-server that the
    command needs."""

    name: str
    source: str
    help: str
    extra: str = ""
    nested: bool = False
    # Part of research/ or benchmarks/, which are not in any distribution.
    in_checkout: bool = False

    @property
    def installation(self) -> str:
        """How to install everything that the command needs."""
        if self.in_checkout:
            return "`make install` in a checkout of the source"
        return f"pip install '{SERVER}[{self.extra}]'" if self.extra else f"pip install {SERVER}"

    @property
    def needs(self) -> str:
        if self.in_checkout:
            return f"`ghostless {self.name}` is not part of {SERVER}"
        return f"`ghostless {self.name}` needs {SERVER}" + (f" with the extra '{self.extra}'" if self.extra else "")

    def load(self) -> Any:
        module, attribute = self.source.split(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise SystemExit(self.explain(error)) from error

    def explain(self, error: ModuleNotFoundError) -> str:
        """One line that says what to install; raises `error` if the cause is not a missing installation."""
        missing = error.name or ""
        package = missing.partition(".")[0]
        # A missing module of an installed package of ours is a bug.
        if package in _PACKAGES and importlib.util.find_spec(package) is not None:
            raise error
        return f"error: {self.needs} ({missing} is missing): {self.installation}"


COMMANDS = (
    Command("train", "learning.cli:train", "Train a model and write its checkpoint.", "train"),
    Command("fit", "learning.own.cli:fit", "Fit a head with uncertainty to a trained ONNX ranker.", "train"),
    Command(
        "evaluate",
        "research.comparison.cli:evaluate",
        "Evaluate a checkpoint; compare methods.",
        nested=True,
        in_checkout=True,
    ),
    Command(
        "active",
        "research.active.cli:active",
        "Compare strategies that choose which rows to label.",
        in_checkout=True,
    ),
    Command("export", "export.cli:export", "Export a checkpoint as one verified ONNX graph.", "train"),
    Command("models", "ghostless.commands.models:app", "List, describe, promote and roll back models.", "serve"),
    Command("serve", "serving.cli:serve", "Serve the model repository over gRPC.", "serve"),
    Command("triton", "serving.triton_cli:app", "Start Triton servers on this machine.", "serve"),
    Command("certs", "ghostless.commands.certs:app", "Make certificates for development.", "serve"),
    Command("identities", "ghostless.commands.identities:app", "Make tokens; check who may call.", "serve"),
    Command("predict", "ghostless.commands.predict:predict", "Ask a running server for predictions."),
    Command(
        "outcomes", "ghostless.commands.outcomes:outcomes", "Report the outcomes of predictions to a running server."
    ),
    Command("top", "ghostless.commands.top:top", "Show live figures of a running server."),
    Command(
        "loadtest",
        "ghostless.commands.loadtest:app",
        "Load-test a server: run, soak, spike, overload, compare.",
        "loadtest",
        nested=True,
    ),
    Command(
        "bench",
        "ghostless.commands.bench:app",
        "Run the benchmarks and check each figure against its bound.",
        nested=True,
        in_checkout=True,
    ),
)


def build(commands: Sequence[Command], argv: list[str], help_text: str) -> "typer.Typer":
    """An app in which only the command named in `argv` is imported; the others are listed for --help."""
    import typer

    app = typer.Typer(help=help_text, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
    app.callback()(lambda: None)
    wanted = named_command(commands, argv)
    for command in commands:
        if command is not wanted:
            app.command(command.name, help=command.help)(_not_loaded)
            continue
        target = command.load()
        if command.nested:
            target = target(argv[argv.index(command.name) + 1 :])
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=command.name, help=command.help)
        else:
            app.command(command.name)(target)
    return app


def named_command(commands: Sequence[Command], argv: list[str]) -> Command | None:
    """The command named by the first argument."""
    wanted = next((word for word in argv if not word.startswith("-")), None)
    return next((command for command in commands if command.name == wanted), None)


def _not_loaded() -> None:
    raise AssertionError("only the command that was named is ever run")


def run(entry: Callable[[], Any]) -> None:
    """Run `entry`; print a user error as one line on stderr and exit with status 1."""
    try:
        entry()
    except KeyboardInterrupt:
        sys.exit(130)
    except GhostlessError as error:
        from rich.console import Console

        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


def without_server(argv: list[str]) -> int:
    """The command if only the client is installed: lists the commands and what each needs."""
    wanted = named_command(COMMANDS, argv)
    if wanted is not None:
        print(f"error: {wanted.needs}: {wanted.installation}", file=sys.stderr)
        return 1
    words = [word for word in argv if word != "--help"]
    if words:
        print(f"error: no such command or option: {words[0]}; `ghostless --help` lists the commands", file=sys.stderr)
        return 2
    print("Usage: ghostless [--version] COMMAND ...\n")
    print(f"{SUMMARY}\nOnly the client is installed. The commands, and what each needs:\n")
    for command in COMMANDS:
        print(f"  {command.name:10}{command.help:58}{command.installation}")
    return 0


def main() -> None:
    ignore_working_folder()
    argv = sys.argv[1:]
    if argv[:1] == ["--version"]:
        print(f"ghostless {ghostless.__version__}")
        return
    if any(importlib.util.find_spec(package) is None for package in ("typer", "rich")):
        sys.exit(without_server(argv))
    try:
        run(lambda: root_app(argv)())
    except ModuleNotFoundError as error:
        command = named_command(COMMANDS, argv)
        if command is None:
            raise
        sys.exit(command.explain(error))


def root_app(argv: list[str]) -> "typer.Typer":
    import typer

    app = build(COMMANDS, argv, SUMMARY)

    @app.callback()
    def options(_: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
        """Only for --help: `main` handles --version before typer runs."""

    return app
