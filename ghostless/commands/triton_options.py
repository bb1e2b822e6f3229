"""How commands that change the version in service reach the Triton servers, and how they switch them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ghostless.contract.repository import ModelEntry

TritonAddresses = Annotated[
    str, typer.Option("--triton", help="Also switch these Triton servers; gRPC addresses as HOST:PORT,HOST:PORT.")
]
TritonCa = Annotated[
    Path | None,
    typer.Option(
        envvar="GHOSTLESS_TRITON_CA", help="PEM file of the authorities of the Triton servers; turns TLS to them on."
    ),
]
TritonCert = Annotated[
    Path | None, typer.Option(envvar="GHOSTLESS_TRITON_CERT", help="PEM file of the certificate to present to Triton.")
]
TritonKey = Annotated[
    Path | None, typer.Option(envvar="GHOSTLESS_TRITON_KEY", help="PEM file with the key of --triton-cert.")
]
TritonName = Annotated[
    str,
    typer.Option(
        envvar="GHOSTLESS_TRITON_SERVER_NAME",
        help="Name in the certificates of the Triton servers; default: the host of the first address.",
    ),
]


@dataclass(frozen=True)
class TritonFiles:
    """PEM files for TLS to the Triton servers; no `ca`: plain text."""

    ca: Path | None
    cert: Path | None
    key: Path | None
    server_name: str


def switch_tritons(addresses: Sequence[str], entry: ModelEntry, version: int, tls: TritonFiles) -> None:
    from serving.engines.triton.channels import triton_tls
    from serving.engines.triton.control import put_in_service

    def report(address: str) -> None:
        Console(stderr=True).print(f"{address}: {entry.name} version {version} is loaded", highlight=False)

    secured = triton_tls(addresses, tls.ca, tls.cert, tls.key, tls.server_name)
    put_in_service(addresses, entry, version, report, secured)
