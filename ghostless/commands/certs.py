"""`ghostless certs`: a certificate authority for development, and what certificates say."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ghostless.contract.errors import ConfigError
from serving.security.certificates import describe_certificates
from serving.security.development_ca import CA, DevelopmentCa

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Folder for the authority and certificates; created if missing.")]
Days = Annotated[float, typer.Option(min=0.001, help="Days that the certificates are valid.")]
_DEFAULT_HOSTS = ("localhost", "127.0.0.1", "::1")


@app.command()
def create(
    folder: Folder = Path("certs"),
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of the server; repeat for several. Default: localhost, 127.0.0.1 and ::1."),
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option(help="Also make a certificate for the client DNS:NAME; repeat for several.")
    ] = None,
    days: Days = 90.0,
) -> None:
    """Make a development authority, a server certificate and client certificates.

    Reuses an authority that FOLDER already has. Renews the server's certificate and those of the named clients; a
    running server loads them.
    """
    authority = DevelopmentCa(folder)
    written = [folder / CA, *authority.issue_server("server", host or _DEFAULT_HOSTS, days)]
    for name in client or ():
        _check_name(name)
        written += authority.issue_client(name, days=days)
    for path in written:
        typer.echo(path)


@app.command()
def revoke(
    clients: Annotated[list[str], typer.Argument(help="Names of the clients whose certificates to revoke.")],
    folder: Annotated[Path, typer.Option(help="Folder of the authority.")] = Path("certs"),
) -> None:
    """Add client certificates to the authority's revocation list, crl.pem. A running server loads it (--tls-crl)."""
    if not (folder / CA).exists():
        raise ConfigError(f"{folder} holds no authority; make one with `ghostless certs create {folder}`")
    for name in clients:
        _check_name(name)
    typer.echo(DevelopmentCa(folder).revoke(clients))


@app.command()
def show(
    files: Annotated[list[Path], typer.Argument(help="PEM files with certificates.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show the names and expiry of each certificate."""
    now = datetime.now(UTC).timestamp()
    found = [
        {
            "file": str(path),
            "names": list(certificate.names),
            "serial": f"{certificate.serial:x}",
            "not_after": datetime.fromtimestamp(certificate.not_after, UTC).isoformat(),
            "days_left": round((certificate.not_after - now) / 86400, 1),
        }
        for path in files
        for certificate in describe_certificates(path)
    ]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for each in found:
        names = ", ".join(each["names"]) or "no names"  # type: ignore[arg-type]  # a list of texts
        typer.echo(f"{each['file']}: {names}; expires {each['not_after']}, in {each['days_left']} days")


def _check_name(name: str) -> None:
    if not name or any(not (letter.isalnum() or letter in "-._") for letter in name) or name.startswith("."):
        raise ConfigError(f"the client's name is {name!r}; expected letters, digits, dots, dashes and underscores")
