"""`ghostless models`: the repository's models and which version of each is in service."""

import json
import socket
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ghostless.contract import repository
from ghostless.contract.repository import ModelEntry

app = typer.Typer(no_args_is_help=True)

Repository = Annotated[
    Path,
    typer.Option(
        "--repository", envvar="GHOSTLESS_REPOSITORY", help="Folder with the models, as NAME/VERSION/model.onnx."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
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
AuditFile = Annotated[
    Path | None,
    typer.Option("--audit-log", envvar="GHOSTLESS_AUDIT_LOG", help="File to append this change to, as JSON."),
]
Name = Annotated[str, typer.Argument(help="Model name.")]
_DEFAULT = Path("model_repository")


@app.command("list")
def list_models(root: Repository = _DEFAULT, as_json: Json = False) -> None:
    """Every model, its versions and the one in service."""
    entries = repository.scan(root)
    if as_json:
        _print_json([_summary(entry) for entry in entries.values()])
        return
    table = Table("model", "in service", "versions", "roll back to")
    for entry in entries.values():
        table.add_row(
            entry.name,
            str(entry.in_service),
            ", ".join(map(str, entry.versions)),
            ", ".join(map(str, _earlier(entry)[:1])) or "-",
        )
    Console().print(table)


@app.command()
def describe(
    name: Name,
    version: Annotated[int, typer.Option(help="Version to describe; 0 means the one in service.")] = 0,
    root: Repository = _DEFAULT,
    as_json: Json = False,
) -> None:
    """One version in full: features, levels, edges, calibration, provenance. Loads and checks it as for serving."""
    from serving.engines.embedded import load_model

    entry = repository.find(root, name)
    number = version or entry.in_service
    model = load_model(entry.model_file(number), name, number, warm_up_rows=(1,))
    content = {key.removeprefix("ghostless."): json.loads(text) for key, text in sorted(model.properties.items())}
    content |= {"version": number, "in_service": number == entry.in_service, "outputs": list(model.outputs)}
    if as_json:
        _print_json(content)
        return
    table = Table("", f"{name} version {number}", show_header=True)
    for key, value in content.items():
        if key == "features":
            for feature in value:
                words = [feature["type"], feature["role"]]
                if feature["vocabulary"]:
                    words.append(f"{feature['vocabulary']} ids")
                table.add_row(f"feature {feature['name']}", ", ".join(words))
        else:
            table.add_row(key, value if isinstance(value, str) else json.dumps(value))
    Console().print(table)


@app.command()
def promote(
    name: Name,
    version: Annotated[int, typer.Argument(help="Version to put in service.")],
    root: Repository = _DEFAULT,
    triton: TritonAddresses = "",
    triton_ca: TritonCa = None,
    triton_cert: TritonCert = None,
    triton_key: TritonKey = None,
    triton_server_name: TritonName = "",
    audit_log: AuditFile = None,
    as_json: Json = False,
) -> None:
    """Put a version in service. Running servers follow by themselves, once it loaded and warmed up there."""
    _on_tritons(triton, root, name, version, triton_ca, triton_cert, triton_key, triton_server_name)
    pointer = repository.promote(root, name, version)
    _audit(audit_log, "promote", root, name, pointer)
    _report(name, pointer, as_json)


@app.command()
def rollback(
    name: Name,
    root: Repository = _DEFAULT,
    triton: TritonAddresses = "",
    triton_ca: TritonCa = None,
    triton_cert: TritonCert = None,
    triton_key: TritonKey = None,
    triton_server_name: TritonName = "",
    audit_log: AuditFile = None,
    as_json: Json = False,
) -> None:
    """Put the version before the present one back in service."""
    earlier = _earlier(repository.find(root, name))
    if earlier:
        _on_tritons(triton, root, name, earlier[0], triton_ca, triton_cert, triton_key, triton_server_name)
    pointer = repository.rollback(root, name)
    _audit(audit_log, "rollback", root, name, pointer)
    _report(name, pointer, as_json)


def _on_tritons(
    addresses: str,
    root: Path,
    name: str,
    version: int,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    server_name: str,
) -> None:
    """Before the repository says so: if a Triton can't load it, nothing has changed."""
    if not addresses:
        return
    from serving.engines.triton.channels import triton_tls
    from serving.engines.triton.control import put_in_service

    def report(address: str) -> None:
        Console(stderr=True).print(f"{address}: {name} version {version} is loaded", highlight=False)

    wanted = [address.strip() for address in addresses.split(",") if address.strip()]
    tls = triton_tls(wanted, ca, cert, key, server_name)
    put_in_service(wanted, repository.find(root, name), version, report, tls)


def _audit(path: Path | None, call: str, root: Path, name: str, pointer: repository.Pointer) -> None:
    """Who by the system's account: whoever can write to the repository can do this."""
    if path is None:
        return
    from serving.security.audit import AuditLog, system_user

    about = {"repository": str(root), "model": name, "version": pointer.version, "previous": list(pointer.previous)}
    AuditLog(path).write(system_user(), socket.gethostname(), call, "done", **about)


def _report(name: str, pointer: repository.Pointer, as_json: bool) -> None:
    if as_json:
        _print_json({"name": name, "version": pointer.version, "previous": list(pointer.previous)})
    else:
        Console().print(f"{name} version {pointer.version} is in service", highlight=False)


def _summary(entry: ModelEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "in_service": entry.in_service,
        "versions": list(entry.versions),
        "previous": _earlier(entry),
    }


def _earlier(entry: ModelEntry) -> list[int]:
    if entry.pointer is not None:
        return [version for version in entry.pointer.previous if version in entry.versions]
    return list(reversed(entry.versions[:-1]))


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2))
