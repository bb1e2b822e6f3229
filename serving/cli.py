"""`ghostless serve`. Its flags are generated from the fields of ServeConfig."""

import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from serving import logs
from serving.config import ENV_PREFIX, ServeConfig, load_config
from serving.ignored_variables import log_ignored_variables
from serving.security.settings import SecuritySettings
from serving.stop_signal import exit_on_stop
from serving.telemetry.runtime import runtime
from serving.transport.listening import shown
from serving.transport.settings import ConnectionSettings

if TYPE_CHECKING:
    from serving.engines.interface import Engine

_log = logging.getLogger(__name__)


def serve(**flags: Any) -> None:
    """Serve the model repository over gRPC.

    Every flag can also be set in the environment (GHOSTLESS_PORT=8500) or in the TOML file named by --config
    (port = 8500). A flag wins over the environment, the environment over the file.
    """
    run(load_config({name: value for name, value in flags.items() if value is not None}))


def run(config: ServeConfig, wrap: "Callable[[Engine], Engine]" = lambda engine: engine) -> None:
    """Serve in the foreground until SIGTERM or SIGINT; `wrap` as in `serving.server.run_server`."""
    logs.set_up(config.log_level, config.log_format, "supervisor" if config.worker_count > 1 else "server")
    log_ignored_variables()
    exit_on_stop()

    def announce(port: int, example: str) -> None:
        console = Console(highlight=False, soft_wrap=True, markup=False)
        say = _log.info if config.log_format == "json" else console.print
        workers = f", {config.worker_count} workers" if config.worker_count > 1 else ""
        source = f"Triton {config.triton}" if config.engine == "triton" else config.repository
        if shared.exposition:
            scheme = "https" if config.metrics_tls_paths else "http"
            shared.exposition.address = shown(config.host, port)
            operations = f"{scheme}://{_browsable(config.exposition_host)}:{shared.exposition.port}"
            if config.console:
                say(f"console: {operations}/")
        say(f"ready: serving {source} on {shown(config.host, port)}{workers}")
        if shared.exposition:
            say(f"metrics: {operations}/metrics")
        say(f"try it:\n  {example}")

    with runtime(config) as shared:
        if config.worker_count > 1:
            from serving.workers import Supervisor

            Supervisor(config, announce, shared, wrap).run()
        else:
            from serving.server import run_server

            run_server(config, announce, wrap=wrap, directory=shared.directory, heartbeats=shared.heartbeats)


def _browsable(host: str) -> str:
    """The host for a URL; an address that stands for all of them is not one."""
    return "localhost" if host in ("0.0.0.0", "::", "[::]") else f"[{host.strip('[]')}]" if ":" in host else host


def parameters() -> list[inspect.Parameter]:
    """Each field of ServeConfig as an option. None means "not given": the environment or the file then sets it."""
    options = []
    groups = {**ConnectionSettings.model_fields, **SecuritySettings.model_fields}
    own_first = sorted(ServeConfig.model_fields.items(), key=lambda item: item[0] in groups)
    for name, field in own_first:
        kind: Any = Path if field.annotation == Path | None else field.annotation
        default = "none" if field.default in (None, "") else field.default
        text = f"{field.description} [default: {default}; env: {ENV_PREFIX}{name.upper()}]"
        flag = name.replace("_", "-")
        names = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
        option = typer.Option(names, help=text, show_default=False)
        options.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
            )
        )
    return options


# typer creates the options from the signature.
serve.__signature__ = inspect.Signature(parameters())  # type: ignore[attr-defined]  # mypy knows no such attribute
