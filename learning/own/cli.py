"""`ghostless fit`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from ghostless.contract.errors import ConfigError
from ghostless.heads.bins import Binning
from ghostless.heads.config import CovarianceName
from learning import run_report, training
from learning.cli import DataOption, JsonOption, SchemaOption
from learning.config import FROZEN, MethodName, ModelConfig, TrainConfig
from learning.data.load import load
from learning.own import fitting
from learning.schema import Schema
from learning.trained import TrainedModel, is_complete

_MODEL, _TRAIN = ModelConfig(), TrainConfig()


def fit(
    backbone: Annotated[Path, typer.Option(help="Trained ranker: an ONNX file, or a .pt2 file of torch.export.")],
    features_from: Annotated[
        str,
        typer.Option(
            help="Output of the ranker to put the head on, by name or number from 0: float32 [rows, width], below its "
            "last layer."
        ),
    ],
    data: DataOption = "synthetic",
    schema: SchemaOption = None,
    effects: Annotated[
        str,
        typer.Option(
            help="Id features with effects, separated by commas: the schema's features of kind id. Features that only "
            "the ranker needs have kind category."
        ),
    ] = "",
    unknown_id: Annotated[
        list[str] | None,
        typer.Option(
            help="FEATURE=ID: what the ranker gets for an id that --data does not contain. Default: the id itself."
        ),
    ] = None,
    trained_on: Annotated[
        str,
        typer.Option(help="Rows that the ranker was trained on, as for --data, to measure how much it memorised."),
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder for the run; resumes an interrupted run found there.")] = Path(
        "runs/model"
    ),
    head: Annotated[Literal["qr", "cr"], typer.Option(help="qr: quantile head; cr: histogram head.")] = "cr",
    method: Annotated[
        MethodName, typer.Option(help="vbll: variational last layer; deterministic: the same without a posterior.")
    ] = _MODEL.method,
    covariance: Annotated[
        CovarianceName, typer.Option(help="Structure of the last layer's posterior covariance.")
    ] = _MODEL.covariance,
    rank: Annotated[int, typer.Option(help="Rank for --covariance lowrank.")] = _MODEL.rank,
    bins: Annotated[int, typer.Option(help="Approximate number of CDF segments.")] = _MODEL.bins,
    binning: Annotated[
        Binning, typer.Option(help="adaptive: bins follow the data; uniform: equal bins, as in the paper.")
    ] = _MODEL.binning,
    beta: Annotated[float, typer.Option(help="Weight of the KL term (KL / rows) in the loss.")] = _TRAIN.beta,
    steps: Annotated[int | None, typer.Option(help="Steps of the fit. Default: 800 to 2,500.")] = _TRAIN.steps,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = _TRAIN.learning_rate,
    test: Annotated[float, typer.Option(help="Fraction of rows held out for the final evaluation.")] = _TRAIN.test,
    calibration: Annotated[
        float, typer.Option(help="Fraction of the other rows, at most 20,000, held out for calibration.")
    ] = _TRAIN.calibration,
    seed: Annotated[int, typer.Option(help="Random seed of split, initialisation and row order.")] = _TRAIN.seed,
    skip_existing: Annotated[bool, typer.Option(help="Do nothing if --out has a finished run.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fit a head with uncertainty to a trained ranker without changing the ranker, and write a checkpoint.

    The ranker is run by ONNX Runtime. Use rows that it was not trained on: the head can't distinguish what the ranker
    memorised from what it learned.
    """
    console = Console(stderr=as_json)
    if skip_existing and is_complete(out):
        console.print(f"{out} has a finished run; nothing to do")
        return
    dataset = load(data, schema)
    _check_effects(effects, dataset.schema)
    ranker = fitting.load_ranker(backbone, features_from, dataset.schema, _unknown(unknown_id or [], dataset.schema))
    model = ModelConfig(
        head=head,
        method=method,
        covariance=covariance,
        rank=rank,
        bins=bins,
        binning=binning,
        own=FROZEN,
        own_options=fitting.identity(ranker),
    )
    config = TrainConfig(
        steps=steps,
        learning_rate=learning_rate,
        beta=beta,
        seed=seed,
        test=test,
        calibration=calibration,
    )
    trainer = fitting.trainer(ranker, dataset, data, model, config, out)
    checkpoint = run_report.run_with_progress(trainer, f"fitting {head}-{method}", console)
    trained = TrainedModel((checkpoint,), metrics=checkpoint.metrics)
    notes: list[str] = []
    fresh = training.split(dataset, config).test
    if trained_on:
        if fresh is None:
            raise ConfigError("--trained-on compares with test rows; set --test above 0")
        used = load(trained_on, schema, target=dataset.schema.target)
        notes += filter(None, [fitting.memorised(checkpoint, fresh, used).note])
    title = f"{head}-{method} on {backbone.name} and {data}"
    run_report.conclude(trained, dataset, out, console, title, as_json, notes)


def _check_effects(text: str, schema: Schema) -> None:
    """Raise an error if --effects does not name the schema's ids."""
    if not text:
        return
    wanted = [word.strip() for word in text.split(",") if word.strip()]
    for name in wanted:
        if name not in schema.id_names:
            raise ConfigError(f"--effects names '{name}', but the schema's ids are {', '.join(schema.id_names)}")
    for name in schema.id_names:
        if name not in wanted:
            raise ConfigError(
                f"--effects leaves out the id '{name}'; give it kind category in the schema, so that it has no effect"
            )


def _unknown(words: list[str], schema: Schema) -> dict[str, int | str]:
    """Parse FEATURE=ID words into ids by feature; each id has the type of its feature."""
    types = {feature.name: feature.type for feature in schema.features if feature.is_coded}
    unknown: dict[str, int | str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in types:
            raise ConfigError(f"--unknown-id is '{word}', expected FEATURE=ID with one of {', '.join(types)}")
        if types[name] == "string":
            unknown[name] = text
            continue
        try:
            unknown[name] = int(text)
        except ValueError as wrong:
            raise ConfigError(f"--unknown-id is '{word}', but '{name}' is int64") from wrong
    return unknown
