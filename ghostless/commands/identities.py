"""`ghostless identities`: tokens for the identities of a server, and a check of their file."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from ghostless.contract.errors import ConfigError
from ghostless.contract.secret_files import read_secret, write_secret
from serving.security.identities import CALL_KINDS, parse_identities, read_identities
from serving.security.tokens import new_token

app = typer.Typer(no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="Identities file of `ghostless serve --identities`.")]


@app.command()
def token(
    file: File,
    name: Annotated[str, typer.Argument(help="Identity that the token is for; added to the file if it is not there.")],
    out: Annotated[Path, typer.Option(help="File to write the token to; only its owner can read it.")],
    call: Annotated[
        list[str] | None,
        typer.Option(help=f"Calls that a new identity may make: {', '.join(CALL_KINDS)}. Default: predict and read."),
    ] = None,
    days: Annotated[float, typer.Option(min=0.0, help="Days until the token expires; 0: never.")] = 0.0,
) -> None:
    """Make a token and add its hash to the identities file. A running server reads the file again.

    To rotate: make a second token, give it to the clients, then delete the first one's [[...tokens]] from the file.
    """
    content = read_secret(file, "the identities file").decode() if file.exists() else ""
    known = _parse(file, content)
    secret, key_id, digest = new_token()
    lines = [content.rstrip("\n"), ""] if content.strip() else []
    if name not in known:
        lines += [f"[{name}]", f"calls = {json.dumps(call or ['predict', 'read'])}", ""]
    elif call:
        raise ConfigError(f"identity {name!r} is in {file} already; change its calls there")
    lines += [f"[[{name}.tokens]]", f'id = "{key_id}"', f'sha256 = "{digest}"']
    if days:
        lines.append(f"expires = {(datetime.now(UTC) + timedelta(days=days)).isoformat(timespec='seconds')}")
    changed = "\n".join(lines) + "\n"
    _parse(file, changed)
    if out.exists():
        raise ConfigError(f"{out} exists; tokens are not overwritten")
    write_secret(out, secret.encode() + b"\n")
    write_secret(file, changed.encode())
    typer.echo(f"token {key_id} of {name} is in {out}; its hash is in {file}")


@app.command()
def check(
    file: File, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False
) -> None:
    """Check an identities file as the server does, and list what each identity may do."""
    found = read_identities(file)
    rows = [
        {
            "identity": identity.name,
            "calls": sorted(identity.calls),
            "models": list(identity.models),
            "rows_per_s": _number(identity.rows_per_s),
            "concurrent_rows": _number(identity.concurrent_rows),
        }
        for identity in found.by_name.values()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        limits = [f"{row[key]:g} {key}" for key in ("rows_per_s", "concurrent_rows") if row[key] is not None]
        about = f"{', '.join(row['calls'])} on {', '.join(row['models'])}"  # type: ignore[arg-type]  # lists of texts
        typer.echo(f"{row['identity']}: {about}; {', '.join(limits) or 'no limits'}")


def _parse(file: Path, content: str) -> set[str]:
    try:
        return set(parse_identities(content).by_name)
    except ValueError as error:
        raise ConfigError(f"identities file {file}: {error}") from error


def _number(limit: float) -> float | None:
    return None if limit == float("inf") else limit
