"""`python -m loadtest.compare.fan_out_server serve --ensemble NAME=A,B`: `ghostless serve` with ensembles as calls.

All other options are those of `ghostless serve`.
"""

import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ghostless.contract.errors import GhostlessError
from loadtest.errors import PlanError
from serving import cli
from serving.config import load_config

if TYPE_CHECKING:
    from serving.engines.interface import Engine


def serve(ensemble: list[str], **flags: Any) -> None:
    """Serve ensembles of the repository's models, with one call per member for each request."""
    groups = dict(_group(text) for text in ensemble)

    def wrap(engine: "Engine") -> "Engine":
        from loadtest.compare.fan_out import FanOutEngine

        return FanOutEngine(engine, groups)

    cli.run(load_config({name: value for name, value in flags.items() if value is not None}), wrap)


def _group(text: str) -> tuple[str, list[str]]:
    name, _, members = text.partition("=")
    named = [member for member in members.split(",") if member]
    if not name or len(named) < 2:
        raise PlanError(f"--ensemble {text!r}; expected NAME=MEMBER,MEMBER with two members or more")
    return name, named


def main() -> None:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.callback()(lambda: None)
    option = typer.Option("--ensemble", help="NAME=MEMBER,MEMBER: the models that answer together as NAME.")
    own = inspect.Parameter("ensemble", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[list[str], option])
    serve.__signature__ = inspect.Signature([own, *cli.parameters()])  # type: ignore[attr-defined]  # as typer reads it
    app.command()(serve)
    try:
        app()
    except GhostlessError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
