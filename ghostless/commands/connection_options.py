"""How commands that call a server reach it: TLS and token, from flags or the environment."""

from pathlib import Path
from typing import Annotated

import typer

from ghostless.client import Client, Tls

DEFAULT_ADDRESS = "localhost:8500"

TlsOn = Annotated[
    bool,
    typer.Option(
        "--tls", envvar="GHOSTLESS_CLIENT_TLS", help="Use TLS with the system's authorities; --ca and --cert imply TLS."
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option("--ca", envvar="GHOSTLESS_CLIENT_CA", help="PEM file of the server's certificate authorities."),
]
Cert = Annotated[
    Path | None,
    typer.Option("--cert", envvar="GHOSTLESS_CLIENT_CERT", help="PEM file of the client certificate, for mutual TLS."),
]
Key = Annotated[
    Path | None, typer.Option("--key", envvar="GHOSTLESS_CLIENT_KEY", help="PEM file with the key of --cert.")
]
ServerName = Annotated[
    str,
    typer.Option(
        "--server-name",
        envvar="GHOSTLESS_CLIENT_SERVER_NAME",
        help="Name in the server's certificate, if it is not the host of --address.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="GHOSTLESS_CLIENT_TOKEN_FILE", help="File with the bearer token to send with each call."
    ),
]


def tls_of(tls: bool, ca: Path | None, cert: Path | None, key: Path | None, server_name: str) -> Tls | None:
    """None: plain text."""
    if not (tls or ca or cert or key or server_name):
        return None
    return Tls.from_files(ca, cert, key, server_name)


def open_client(address: str | list[str], timeout_s: float, tls: Tls | None, token: Path | None) -> Client:
    return Client(address, timeout_s=timeout_s, connections=1, tls=tls, token=token)
