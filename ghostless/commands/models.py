"""`ghostless models`: lists the repository's models and changes the version in service."""

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ghostless.client import Tls
from ghostless.client.channel import check_token_is_private
from ghostless.client.token import BearerToken
from ghostless.commands.connection_options import Ca, Cert, Key, ServerName, TlsOn, TokenFile, tls_of
from ghostless.commands.triton_options import (
    TritonAddresses,
    TritonCa,
    TritonCert,
    TritonFiles,
    TritonKey,
    TritonName,
    switch_tritons,
)
from ghostless.contract import repository
from ghostless.contract.errors import InvalidModelError
from ghostless.contract.repository import ModelEntry

if TYPE_CHECKING:
    from serving.running_servers import ServerAccess, ServerAnswer

app = typer.Typer(no_args_is_help=True)

Repository = Annotated[
    Path,
    typer.Option(
        "--repository", envvar="GHOSTLESS_REPOSITORY", help="Folder with the models, as NAME/VERSION/model.onnx."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
AuditFile = Annotated[
    Path | None,
    typer.Option("--audit-log", envvar="GHOSTLESS_AUDIT_LOG", help="File to append this change to, as JSON."),
]
AskedServers = Annotated[
    str,
    typer.Option("--address", help="Also ask these running servers which version they serve; HOST:PORT,HOST:PORT."),
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
def list_models(
    root: Repository = _DEFAULT,
    address: AskedServers = "",
    tls: TlsOn = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    server_name: ServerName = "",
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List all models with their versions and the one that should be in service (wanted)."""
    entries = repository.scan(root)
    servers = _split(address)
    answers = _ask(servers, _access(servers, tls_of(tls, ca, cert, key, server_name), token_file)) if servers else {}
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
    tls: TlsOn = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    server_name: ServerName = "",
    token_file: TokenFile = None,
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
    files = TritonFiles(triton_ca, triton_cert, triton_key, triton_server_name)
    servers = _split(address)
    access = _access(servers, tls_of(tls, ca, cert, key, server_name), token_file) if servers else None
    _prepare(entry, version, check, triton, files)
    pointer = repository.promote(root, name, version)
    _audit(audit_log, "promote", root, name, pointer)
    _wait(name, pointer, servers, access, wait_s)
    _report(name, pointer, bool(servers), as_json)


@app.command()
def rollback(
    name: Name,
    root: Repository = _DEFAULT,
    check: Check = True,
    address: AwaitedServers = "",
    wait_s: WaitSeconds = _WAIT_S,
    tls: TlsOn = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    server_name: ServerName = "",
    token_file: TokenFile = None,
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
    files = TritonFiles(triton_ca, triton_cert, triton_key, triton_server_name)
    servers = _split(address)
    access = _access(servers, tls_of(tls, ca, cert, key, server_name), token_file) if servers else None
    for version in repository.earlier_versions(entry)[:1]:
        _prepare(entry, version, check, triton, files)
    pointer = repository.rollback(root, name)
    _audit(audit_log, "rollback", root, name, pointer)
    _wait(name, pointer, servers, access, wait_s)
    _report(name, pointer, bool(servers), as_json)


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
        switch_tritons(_split(tritons), entry, version, tls)


def _audit(path: Path | None, call: str, root: Path, name: str, pointer: repository.Pointer) -> None:
    """Who by the system's account: whoever can write to the repository can do this."""
    if path is None:
        return
    from serving.security.audit import AuditLog, system_user

    about = {"repository": str(root), "model": name, "version": pointer.version, "previous": list(pointer.previous)}
    AuditLog(path).write(system_user(), socket.gethostname(), call, "done", **about)


def _wait(
    name: str, pointer: repository.Pointer, servers: Sequence[str], access: "ServerAccess | None", wait_s: float
) -> None:
    """Wait until the servers serve the version."""
    if access is None:
        return
    from serving.running_servers import wait_until_served

    def report(address: str) -> None:
        Console(stderr=True).print(f"{address}: {name} version {pointer.version} is served", highlight=False)

    wait_until_served(servers, access, name, pointer.version, wait_s, report)


def _report(name: str, pointer: repository.Pointer, is_served: bool, as_json: bool) -> None:
    if as_json:
        _print_json({"name": name, "version": pointer.version, "previous": list(pointer.previous)})
    elif is_served:
        Console().print(f"{name} version {pointer.version} is in service", highlight=False)
    else:
        Console().print(
            f"{name} version {pointer.version} is wanted; servers load it at their next poll of the repository, and "
            f"`ghostless models list --address HOST:PORT` shows what they serve",
            highlight=False,
            soft_wrap=True,
        )


def _access(servers: Sequence[str], tls: Tls | None, token_file: Path | None) -> "ServerAccess":
    from serving.running_servers import ServerAccess

    metadata = () if token_file is None else BearerToken(token_file).metadata()
    if metadata:
        check_token_is_private(tuple(servers), tls)
    return ServerAccess(tls.credentials(), tls.server_name, metadata) if tls else ServerAccess(metadata=metadata)


def _ask(addresses: Sequence[str], access: "ServerAccess") -> "dict[str, ServerAnswer]":
    from serving.running_servers import ask

    return {address: ask(address, access) for address in addresses}


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
