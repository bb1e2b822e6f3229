"""`ghostless models`: lists the repository's models and changes the version in service."""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ghostless.contract import repository
from ghostless.contract.errors import InvalidModelError
from ghostless.contract.repository import ModelEntry

if TYPE_CHECKING:
    from serving.served_versions import ServerAnswer

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
AskedServers = Annotated[
    str,
    typer.Option(
        "--address", help="Also show which version these running servers serve, and why; HOST:PORT,HOST:PORT."
    ),
]
AwaitedServers = Annotated[
    str,
    typer.Option("--address", help="Wait until these running servers serve the version; HOST:PORT,HOST:PORT."),
]
WaitSeconds = Annotated[float, typer.Option("--wait-s", help="Maximum seconds to wait for the servers of --address.")]
Check = Annotated[
    bool,
    typer.Option(
        "--check/--no-check",
        help="Load the version first, as a server would, and change nothing if it can't be served.",
    ),
]
Name = Annotated[str, typer.Argument(help="Model name.")]
_DEFAULT = Path("model_repository")
_WAIT_S = 60.0


@app.command("list")
def list_models(root: Repository = _DEFAULT, address: AskedServers = "", as_json: Json = False) -> None:
    """List all models with their versions and the one that should be in service (wanted)."""
    entries = repository.scan(root)
    answers = _ask(_split(address))
    if as_json:
        _print_json([_summary(entry, answers) for entry in entries.values()])
        return
    table = Table("model", "wanted", "versions", "roll back to", *(["served", "why not"] if answers else []))
    for entry in entries.values():
        served = [_served(entry, answer) for answer in answers.values()]
        words = [f"{each}: {one['version'] or '-'}" for each, one in zip(answers, served, strict=True)]
        reasons = [f"{each}: {one['why_not']}" for each, one in zip(answers, served, strict=True) if one["why_not"]]
        table.add_row(
            entry.name,
            str(entry.in_service),
            ", ".join(map(str, entry.versions)),
            ", ".join(map(str, repository.earlier_versions(entry)[:1])) or "-",
            *(["\n".join(words), "\n".join(reasons) or "-"] if answers else []),
        )
    Console().print(table)


@app.command()
def describe(
    name: Name,
    version: Annotated[int, typer.Option(help="Version to describe; 0 means the one in service.")] = 0,
    root: Repository = _DEFAULT,
    as_json: Json = False,
) -> None:
    """Describe one version: features, levels, edges, calibration, provenance. The file is checked as for serving."""
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
    check: Check = True,
    address: AwaitedServers = "",
    wait_s: WaitSeconds = _WAIT_S,
    triton: TritonAddresses = "",
    triton_ca: TritonCa = None,
    triton_cert: TritonCert = None,
    triton_key: TritonKey = None,
    triton_server_name: TritonName = "",
    audit_log: AuditFile = None,
    as_json: Json = False,
) -> None:
    """Put a version in service. Running servers switch to it once they have loaded it and warmed it up."""
    entry = repository.find(root, name)
    repository.check_version(entry, version)
    tls = TritonFiles(triton_ca, triton_cert, triton_key, triton_server_name)
    _prepare(entry, version, check, triton, tls)
    pointer = repository.promote(root, name, version)
    _audit(audit_log, "promote", root, name, pointer)
    _report(name, pointer, _split(address), wait_s, as_json)


@app.command()
def rollback(
    name: Name,
    root: Repository = _DEFAULT,
    check: Check = True,
    address: AwaitedServers = "",
    wait_s: WaitSeconds = _WAIT_S,
    triton: TritonAddresses = "",
    triton_ca: TritonCa = None,
    triton_cert: TritonCert = None,
    triton_key: TritonKey = None,
    triton_server_name: TritonName = "",
    audit_log: AuditFile = None,
    as_json: Json = False,
) -> None:
    """Put the previous version back in service."""
    entry = repository.find(root, name)
    tls = TritonFiles(triton_ca, triton_cert, triton_key, triton_server_name)
    for version in repository.earlier_versions(entry)[:1]:
        _prepare(entry, version, check, triton, tls)
    pointer = repository.rollback(root, name)
    _audit(audit_log, "rollback", root, name, pointer)
    _report(name, pointer, _split(address), wait_s, as_json)


@dataclass(frozen=True)
class TritonFiles:
    """PEM files for TLS to the Triton servers; no `ca`: plain text."""

    ca: Path | None
    cert: Path | None
    key: Path | None
    server_name: str


def _prepare(entry: ModelEntry, version: int, check: bool, tritons: str, tls: TritonFiles) -> None:
    """Check the version and switch the Tritons before the repository is changed: if this fails, nothing changes."""
    if check:
        from serving.engines.embedded import load_model

        try:
            load_model(entry.model_file(version), entry.name, version, warm_up_rows=(1,))
        except InvalidModelError as error:
            raise InvalidModelError(
                f"{error}. {entry.name} version {entry.in_service} stays in service; --no-check skips this check"
            ) from error
    if tritons:
        _on_tritons(_split(tritons), entry, version, tls)


def _on_tritons(addresses: Sequence[str], entry: ModelEntry, version: int, tls: TritonFiles) -> None:
    from serving.engines.triton.channels import triton_tls
    from serving.engines.triton.control import put_in_service

    def report(address: str) -> None:
        Console(stderr=True).print(f"{address}: {entry.name} version {version} is loaded", highlight=False)

    secured = triton_tls(addresses, tls.ca, tls.cert, tls.key, tls.server_name)
    put_in_service(addresses, entry, version, report, secured)


def _audit(path: Path | None, call: str, root: Path, name: str, pointer: repository.Pointer) -> None:
    """Who by the system's account: whoever can write to the repository can do this."""
    if path is None:
        return
    from serving.security.audit import AuditLog, system_user

    about = {"repository": str(root), "model": name, "version": pointer.version, "previous": list(pointer.previous)}
    AuditLog(path).write(system_user(), socket.gethostname(), call, "done", **about)


def _report(name: str, pointer: repository.Pointer, servers: Sequence[str], wait_s: float, as_json: bool) -> None:
    if servers:
        from serving.served_versions import wait_until_served

        def report(address: str) -> None:
            Console(stderr=True).print(f"{address}: {name} version {pointer.version} is served", highlight=False)

        wait_until_served(servers, name, pointer.version, wait_s, report)
    if as_json:
        _print_json({"name": name, "version": pointer.version, "previous": list(pointer.previous)})
    elif servers:
        Console().print(f"{name} version {pointer.version} is in service", highlight=False)
    else:
        Console().print(
            f"{name} version {pointer.version} is wanted; servers load it at their next poll of the repository, and "
            f"`ghostless models list --address HOST:PORT` shows what they serve",
            highlight=False,
            soft_wrap=True,
        )


def _ask(addresses: Sequence[str]) -> "dict[str, ServerAnswer]":
    if not addresses:
        return {}
    from serving.served_versions import ask

    return {address: ask(address) for address in addresses}


def _summary(entry: ModelEntry, answers: "Mapping[str, ServerAnswer]") -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": entry.name,
        "wanted": entry.in_service,
        "versions": list(entry.versions),
        "previous": repository.earlier_versions(entry),
    }
    if answers:
        content["served"] = {address: _served(entry, answer) for address, answer in answers.items()}
    return content


def _served(entry: ModelEntry, answer: "ServerAnswer") -> dict[str, Any]:
    """The version that a server serves, 0 if none, and why it is not the wanted one."""
    if isinstance(answer, str):
        return {"version": 0, "why_not": answer}
    served = answer.get(entry.name)
    if served is None:
        return {"version": 0, "why_not": "the server has no such model"}
    if served.version == entry.in_service:
        return {"version": served.version, "why_not": ""}
    return {"version": served.version, "why_not": served.failed.get(entry.in_service, "not loaded yet")}


def _split(addresses: str) -> list[str]:
    return [address.strip() for address in addresses.split(",") if address.strip()]


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2))
