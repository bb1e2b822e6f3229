"""The `ghostless` command. It only gathers: each package owns its sub-commands and is imported when asked for."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console

from ghostless.contract.errors import GhostlessError


@dataclass(frozen=True)
class Command:
    """A sub-command and where it lives, `module:attribute`; the attribute is a function or a typer.Typer, or where
    `nested` a function that makes one, given the words after the command."""

    name: str
    source: str
    help: str
    extra: str = ""
    nested: bool = False

    def load(self) -> Any:
        module, attribute = self.source.split(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if not self.extra:
                raise
            raise SystemExit(
                f"error: `ghostless {self.name}` needs the '{self.extra}' extra, which is not installed "
                f"({error.name} is missing): pip install 'ghostless[{self.extra}]'"
            ) from error


COMMANDS = (
    Command("train", "learning.cli:train", "Train a model and write its checkpoint.", "learning"),
    Command(
        "evaluate", "research.comparison.cli:evaluate", "Judge a checkpoint; compare methods.", "learning", nested=True
    ),
    Command("active", "research.active.cli:active", "Choose which rows to label, and see what it saves.", "learning"),
    Command("export", "export.cli:export", "Export a checkpoint as one verified ONNX graph.", "learning"),
    Command("models", "serving.models_cli:app", "List, describe, promote and roll back models."),
    Command("serve", "serving.cli:serve", "Serve the model repository over gRPC."),
    Command("triton", "serving.triton_cli:app", "Start real Triton servers on this machine."),
    Command("predict", "ghostless.commands.predict:predict", "Ask a running server for predictions."),
    Command(
        "outcomes", "ghostless.commands.outcomes:outcomes", "Tell a running server what became of its predictions."
    ),
    Command("loadtest", "ghostless.commands.loadtest:app", "Load a server: run, soak, spike, overload.", nested=True),
    Command("bench", "ghostless.commands.bench:app", "Measure the claims: each figure beside its bound.", nested=True),
)


def build(commands: tuple[Command, ...], argv: list[str], help_text: str) -> typer.Typer:
    """An app in which only the command named in `argv` is imported; the others are there for --help."""
    app = typer.Typer(help=help_text, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
    app.callback()(lambda: None)
    wanted = next((word for word in argv if not word.startswith("-")), None)
    for command in commands:
        if command.name != wanted:
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


def _not_loaded() -> None:
    raise AssertionError("only the command that was named is ever run")


def run(entry: Callable[[], Any]) -> None:
    """Run `entry`; a user's error becomes one line on stderr and exit status 1."""
    try:
        entry()
    except KeyboardInterrupt:
        sys.exit(130)
    except GhostlessError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


def main() -> None:
    argv = sys.argv[1:]
    run(lambda: build(COMMANDS, argv, "Whole predictive distributions for ranking, with their uncertainty.")())
