"""`ghostless predict`: call a running server and print a table or JSON, or draw a plot."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ghostless.client import Model
from ghostless.client.scoring import SCORING_HELP, parse_scoring
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
from ghostless.commands.predict_input import PredictInput, describe_features, query_from_file, query_from_json
from ghostless.commands.predict_output import prediction_json, prediction_table, print_table
from ghostless.commands.predict_plot import plot_prediction
from ghostless.contract.errors import InvalidRequestError


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


def predict(
    address: Annotated[
        list[str] | None,
        typer.Option(
            help="Server address host:port [default: localhost:8500]. Repeat or separate by commas for several."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Model name. Default: the server's default model.")] = "",
    version: Annotated[int, typer.Option(help="Model version; 0 means the one in service.")] = 0,
    request: Annotated[
        str, typer.Option(help='Request as JSON, {"context": {...}, "candidates": {...}}, or @FILE.')
    ] = "",
    input_file: Annotated[
        Path | None, typer.Option("--input", help="CSV or Parquet file whose rows are the candidates.")
    ] = None,
    context: Annotated[
        str,
        typer.Option(help="Context features for --input, as JSON or @FILE; others come from columns with one value."),
    ] = "",
    outputs: Annotated[
        str,
        typer.Option(
            help="Outputs to request, comma-separated, such as mean,bins; empty: all that the model has except "
            "emg_density. --levels adds quantiles."
        ),
    ] = "",
    levels: Annotated[
        str, typer.Option(help="Quantile levels in (0, 1), comma-separated; empty: the model's levels.")
    ] = "0.05,0.5,0.95",
    thresholds: Annotated[str, typer.Option(help="Show P(target > t) for these t, comma-separated.")] = "",
    score: Annotated[str, typer.Option(help=f"Rank by one of: {SCORING_HELP}.")] = "mean",
    top_k: Annotated[int, typer.Option(min=0, help="Show only the k best candidates; 0 shows all.")] = 0,
    timeout: Annotated[float, typer.Option(min=0.001, help="Deadline in seconds, including retries.")] = 5.0,
    output_format: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    plot: Annotated[
        Path | None, typer.Option(help="Also plot the first candidates' distributions to this .png or .svg file.")
    ] = None,
    tls: TlsOn = False,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    server_name: ServerName = "",
    token_file: TokenFile = None,
) -> None:
    """Ask a running server for predictive distributions.

    ghostless predict --request '{"context": {"user_id": 7}, "candidates": {"video_id": [11, 42]}}'
    """
    limits = _numbers(thresholds, "--thresholds")
    secured = tls_of(tls, ca, cert, key, server_name)
    with open_client(address or DEFAULT_ADDRESS, timeout, secured, token_file) as client:
        described = client.get_model(model, version)
        query = _query(request, input_file, context, described)
        prediction = client.predict(
            context=query.context,
            candidates=query.candidates,
            model=model,
            # Use the version just described: a new one may go into service meanwhile and have other features.
            version=described.version,
            outputs=[name.strip() for name in outputs.split(",") if name.strip()],
            quantile_levels=_numbers(levels, "--levels"),
            thresholds=limits,
            scoring=parse_scoring(score),
            top_k=top_k,
        )
    if output_format is Format.JSON:
        typer.echo(prediction_json(prediction))
    else:
        print_table(prediction_table(prediction, query, described, limits))
    if plot is not None:
        plot_prediction(plot, prediction, query, described)
        typer.echo(f"drawn: {plot}", err=True)


def _query(request: str, input_file: Path | None, context: str, model: Model) -> PredictInput:
    if bool(request) == (input_file is not None):
        raise InvalidRequestError(
            f"give the candidates with either --request or --input; model '{model.name}' has {describe_features(model)}"
        )
    if input_file is not None:
        return query_from_file(input_file, context, model)
    if context:
        raise InvalidRequestError("--context requires --input; with --request, put it under 'context'")
    return query_from_json(request, model)


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise InvalidRequestError(f"{option} is {text!r}; expected numbers separated by commas") from None
