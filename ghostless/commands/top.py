"""`ghostless top`: live figures of a running server in the terminal."""

import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ghostless.contract.errors import ConfigError

DEFAULT_URL = "http://localhost:9500"
_FIGURES = "/console/api/live"
_TIMEOUT_S = 30.0


def top(
    url: Annotated[str, typer.Option(help="Address of the server's operations port.")] = DEFAULT_URL,
    every_s: Annotated[float, typer.Option("--every", min=1.0, help="Seconds between two readings.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Print the figures once, over one interval, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; implies --once.")] = False,
    ca: Annotated[
        Path | None, typer.Option(help="PEM file with the authorities that sign the server's certificate.")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="PEM file with the client's certificate, for mutual TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file with the key of --cert.")] = None,
) -> None:
    """Show the rate, latency and uncertainty of a running server, by version. Ctrl-C ends it."""
    context = _tls(ca, cert, key) if url.startswith("https:") else None
    console = Console()
    found = read(url, context)
    if once or as_json:
        time.sleep(every_s)
        found = read(url, context)
        if as_json:
            typer.echo(json.dumps(found))
        else:
            console.print(shown(found, url))
        return
    try:
        with Live(shown(found, url), console=console, auto_refresh=False) as screen:
            while True:
                time.sleep(every_s)
                screen.update(shown(read(url, context), url), refresh=True)
    except KeyboardInterrupt:
        return


def read(url: str, context: ssl.SSLContext | None) -> dict[str, Any]:
    """The figures of the console's page "live"; ConfigError if the server does not give them."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url is {url!r}, expected http://HOST:PORT or https://HOST:PORT of the operations port")
    try:
        with urllib.request.urlopen(url.rstrip("/") + _FIGURES, timeout=_TIMEOUT_S, context=context) as answer:
            content: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        raise ConfigError(f"{url} answers {error.code}: is it the operations port, with --console?") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(f"{url} can't be read: {reason}; --url is the operations port (--metrics-port)") from error
    return content


def shown(found: dict[str, Any], url: str) -> Group:
    last = found["series"][-1] if found["series"] else {}
    workers = found["workers"]
    head = Text.assemble(
        (url, "bold"),
        f"   {workers['ready']:g} workers ready   {found['totals']['requests']:,.0f} requests since the start   ",
        f"queue {last.get('queue_rows', 0):g} rows   refused {last.get('refused_per_s', 0):.3g}/s   ",
        f"errors {last.get('errors_per_s', 0):.3g}/s",
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    names = (
        "version",
        "requests/s",
        "rows/s",
        "p50",
        "p95",
        "p99",
        "epistemic share",
        "out of distribution",
        "unknown ids",
    )
    for name in names:
        table.add_column(name, justify="left" if name == "version" else "right")
    for each in found["versions"]:
        unknown = ", ".join(f"{name} {_percent(value)}" for name, value in each["unknown_ids"].items())
        table.add_row(
            f"{each['model']} {each['version']}",
            f"{each['requests_per_s']:.3g}",
            f"{each['rows_per_s']:.4g}",
            *(_milliseconds(each[name]) for name in ("p50_s", "p95_s", "p99_s")),
            _percent(each["epistemic_share"]),
            _percent(each["out_of_distribution"]),
            unknown or "-",
        )
    return Group(head, Text(f"last {found['window_s']:.0f} s", style="dim"), table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.3g} ms"


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    if (cert is None) != (key is None):
        raise ConfigError("--cert and --key must be given together")
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if cert is not None and key is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise ConfigError(f"the TLS files can't be used: {error}") from error
    return context
