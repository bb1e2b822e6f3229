"""`ghostless outcomes`: report the outcomes of predictions to a running server, from a file."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from ghostless.client.outcomes import RESULTS
from ghostless.commands.connection_options import (
    DEFAULT_ADDRESS,
    Ca,
    Cert,
    Key,
    ServerName,
    TlsOn,
    TokenFile,
    open_client,
    tls_of,
)
from ghostless.commands.table_files import read_table
from ghostless.contract.errors import InvalidRequestError

_TYPES = {"request_id": pa.string(), "row": pa.int64(), "actual": pa.float64()}
_MEANINGS = {
    "joined": "matched with their predictions and scored",
    "late": "their predictions are no longer stored",
    "unknown": "this server has no such request_id",
    "duplicate": "already reported before",
    "invalid": "not finite, or the request had fewer candidates",
    "skipped": "outside the share of requests whose predictions are stored",
}


def outcomes(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet with the columns request_id, row and actual.")],
    address: Annotated[str, typer.Option(help="host:port of the server that made the predictions.")] = DEFAULT_ADDRESS,
    batch: Annotated[int, typer.Option(min=1, help="Number of outcomes to send per call.")] = 10_000,
    timeout: Annotated[float, typer.Option(min=0.001, help="Deadline of a call in seconds, including retries.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    tls: TlsOn = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    server_name: ServerName = "",
    token_file: TokenFile = None,
) -> None:
    """Report the outcomes of predictions to a running server.

    Each line of FILE contains the actual value, in the target's unit, of candidate `row` (from 0) of request
    `request_id`.
    """
    counts: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
    with open_client(address, timeout, tls_of(tls, ca, cert, key, server_name), token_file) as client:
        for part in _batches(file, batch):
            ids, rows, actuals = (part[name] for name in _TYPES)
            report = client.record_outcomes(ids.to_pylist(), rows.to_numpy(), actuals.to_numpy())
            counts.update({name: getattr(report, name) for name in RESULTS})
    if as_json:
        typer.echo(json.dumps(counts))
        return
    for name in RESULTS:
        typer.echo(f"{name:<10}{counts[name]:>10}   {_MEANINGS[name]}")


def _batches(file: Path, size: int) -> Iterator[pa.Table]:
    table = read_table(file, {"request_id": pa.string()})
    missing = [name for name in _TYPES if name not in table.column_names]
    if missing:
        raise InvalidRequestError(
            f"{file} has no column {', '.join(missing)}; expected request_id, row and actual, got "
            f"{', '.join(table.column_names)}"
        )
    try:
        table = table.select(list(_TYPES)).cast(pa.schema(_TYPES))
    except (pa.ArrowException, ValueError) as error:
        raise InvalidRequestError(f"{file}: {error}") from error
    for name in _TYPES:
        if table[name].null_count:
            raise InvalidRequestError(f"{file}: column '{name}' has {table[name].null_count} missing values")
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)
