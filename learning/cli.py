"""`ghostless train` and `ghostless evaluate`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from rich.console import Console
from rich.table import Table as RichTable

from ghostless.contract.errors import ConfigError
from ghostless.heads.bins import Binning
from ghostless.heads.config import CovarianceName, HeadName
from learning import auto, evaluation, run_report, training
from learning.checkpoint import Checkpoint
from learning.config import ActivationName, BackboneName, MethodName, ModelConfig, TrainConfig
from learning.data.load import load
from learning.data.table import Dataset
from learning.errors import CheckpointError
from learning.own import torch_ranker
from learning.pair_report import draw_pairs, pair_tables
from learning.trained import TrainedModel, is_complete

# Share of live hidden units below which `train` prints a warning.
FEW_LIVE_UNITS = 0.5

_MODEL, _TRAIN = ModelConfig(), TrainConfig()

DataOption = Annotated[
    str,
    typer.Option(
        help="Data to use: synthetic[:ROWS], toy, kuairand:DIR, kuairec:PATH, wechat:DIR, uber:PATH, or a CSV or "
        "Parquet file with --schema."
    ),
]
SchemaOption = Annotated[Path | None, typer.Option(help="TOML or JSON schema of a CSV or Parquet file (docs/data.md).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


def train(
    data: DataOption = "synthetic",
    schema: SchemaOption = None,
    out: Annotated[Path, typer.Option(help="Folder for the run; resumes an interrupted run found there.")] = Path(
        "runs/model"
    ),
    head: Annotated[
        Literal["qr", "cr", "auto"],
        typer.Option(help="qr: quantile head; cr: histogram head; auto: trains both, keeps the better or their pool."),
    ] = "cr",
    method: Annotated[
        MethodName, typer.Option(help="vbll: variational last layer; deterministic: the same network without it.")
    ] = _MODEL.method,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the training rows. Default: 20, limited to between 800 and 2,500 steps, but at least one "
            "pass."
        ),
    ] = _TRAIN.epochs,
    steps: Annotated[
        int | None, typer.Option(help="Training steps of --batch-rows rows each, instead of --epochs.")
    ] = _TRAIN.steps,
    batch_rows: Annotated[
        int | None,
        typer.Option(
            help="Rows per training step, over all processes. [default: a tenth of the training rows, 128 to 1,024]"
        ),
    ] = _TRAIN.batch_rows,
    learning_rate: Annotated[
        float, typer.Option(help="Learning rate of Adam; embedding tables use four times this rate.")
    ] = _TRAIN.learning_rate,
    decay: Annotated[
        float | None,
        typer.Option(help="L2 penalty of the embedding tables. Default: 250 divided by the number of training rows."),
    ] = _TRAIN.embedding_decay,
    beta: Annotated[float, typer.Option(help="Weight of the KL term (KL / rows) in the loss.")] = _TRAIN.beta,
    prior_scale: Annotated[
        float, typer.Option(help="Prior standard deviation of the last layer.")
    ] = _MODEL.prior_scale,
    covariance: Annotated[
        CovarianceName, typer.Option(help="Structure of the last layer's posterior covariance.")
    ] = _MODEL.covariance,
    rank: Annotated[int, typer.Option(help="Rank for --covariance lowrank.")] = _MODEL.rank,
    backbone: Annotated[
        str,
        typer.Option(
            help="Network below the last layer. cross: MLP with a cross layer; sn+cross: the same with spectral norm; "
            "sn, sn+raw: the paper's MLP with spectral norm, without and with raw inputs in the last layer; "
            "spectral-residual: residual blocks with spectral norm. Or your own: package.module:Class, a "
            "torch.nn.Module (docs/bring-your-own.md)."
        ),
    ] = _MODEL.backbone,
    backbone_option: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, a keyword argument of your own backbone's class; give one option for each."),
    ] = None,
    hidden: Annotated[str, typer.Option(help="Widths of the hidden layers, separated by commas.")] = ",".join(
        map(str, _MODEL.hidden)
    ),
    activation: Annotated[
        ActivationName | None,
        typer.Option(
            help="Activation of the hidden layers. Default: silu for the cross backbone, leaky (slope 0.1) for "
            "sn+cross, relu for the others."
        ),
    ] = _MODEL.activation,
    cross_rank: Annotated[
        int,
        typer.Option(
            help="Maximum rank of the cross layer's matrix; inputs up to twice this wide get a full-rank matrix."
        ),
    ] = _MODEL.cross_rank,
    dropout: Annotated[float, typer.Option(help="Dropout rate of the hidden units.")] = _MODEL.dropout,
    effect_inputs: Annotated[
        bool,
        typer.Option(
            help="Fit the effects of the ids before training and use them as the last columns of their embeddings."
        ),
    ] = _MODEL.effect_inputs,
    levels: Annotated[int, typer.Option(help="Number of quantile levels (qr head).")] = _MODEL.levels,
    groups: Annotated[
        int, typer.Option(help="Number of mixture components; a divisor of --levels (qr head).")
    ] = _MODEL.groups,
    bins: Annotated[
        int, typer.Option(help="Approximate number of CDF segments: classes of the cr head, knots of qr.")
    ] = _MODEL.bins,
    binning: Annotated[
        Binning,
        typer.Option(
            help="adaptive: bins follow the data, and frequent values are point masses; uniform: equal bins, as in the "
            "paper."
        ),
    ] = _MODEL.binning,
    test: Annotated[float, typer.Option(help="Fraction of rows held out for the final evaluation.")] = _TRAIN.test,
    validation: Annotated[
        float,
        typer.Option(
            help="Fraction of the training rows held out for choosing between models. If above 0, these rows also "
            "decide early stopping, instead of the calibration rows."
        ),
    ] = _TRAIN.validation,
    validations: Annotated[
        int, typer.Option(help="Number of times during training that the held-out loss is computed.")
    ] = _TRAIN.validations,
    patience: Annotated[
        int,
        typer.Option(
            help="Stop training after this many validations without a lower loss on held-out rows; 0 never stops early."
        ),
    ] = _TRAIN.patience,
    calibration: Annotated[
        float,
        typer.Option(
            help="Fraction of the non-test rows (at most 20,000 rows) held out to decide early stopping and to "
            "calibrate the predicted distribution. 0 holds out none."
        ),
    ] = _TRAIN.calibration,
    seed: Annotated[int, typer.Option(help="Random seed of split, initialisation and row order.")] = _TRAIN.seed,
    skip_existing: Annotated[bool, typer.Option(help="Do nothing if --out has a finished run.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model and write its checkpoint.

    Under `torchrun --nproc-per-node N -m ghostless train ...` each batch is split among N processes.
    """
    console = Console(stderr=as_json)
    if skip_existing and is_complete(out):
        console.print(f"{out} has a finished run; nothing to do")
        return
    options: dict[str, Any] = {
        "method": method,
        "levels": levels,
        "groups": groups,
        "bins": bins,
        "binning": binning,
        "covariance": covariance,
        "rank": rank,
        "prior_scale": prior_scale,
        **_backbone(backbone, backbone_option or []),
        "hidden": _widths(hidden),
        "activation": activation,
        "cross_rank": cross_rank,
        "effect_inputs": effect_inputs,
        "dropout": dropout,
    }
    train_config = TrainConfig(
        epochs=epochs,
        steps=steps,
        batch_rows=batch_rows,
        learning_rate=learning_rate,
        embedding_decay=decay,
        beta=beta,
        seed=seed,
        test=test,
        validation=validation,
        validations=validations,
        patience=patience,
        calibration=calibration,
    )
    dataset, leader = load(data, schema), training.Shard.join().rank == 0
    if head == "auto":
        trained = _train_auto(dataset, data, options, train_config, out, console)
    else:
        checkpoint = _train(dataset, data, ModelConfig(head=head, **options), train_config, out, console)
        trained = TrainedModel((checkpoint,), metrics=checkpoint.metrics)
    if leader:
        run_report.conclude(trained, dataset, out, console, f"{trained.head}-{method} on {data}", as_json)


def _train(
    dataset: Dataset, data: str, model: ModelConfig, config: TrainConfig, out: Path, console: Console
) -> Checkpoint:
    trainer = training.Trainer(dataset, data, model, config, out)
    checkpoint = run_report.run_with_progress(trainer, f"training {model.head}-{model.method}", console)
    live = checkpoint.metrics["live_units"]
    if live < FEW_LIVE_UNITS and trainer.shard.rank == 0:
        console.print(
            f"warning: only {live:.0%} of the hidden units vary with the input: the features carry little information "
            "about the target, or the units have died. If they have died, try another --activation or a smaller "
            "--learning-rate."
        )
    return checkpoint


def _backbone(name: str, options: list[str]) -> dict[str, str]:
    """The options of `ModelConfig` for a value of --backbone."""
    if torch_ranker.is_import_path(name):
        return {"own": name, "own_options": torch_ranker.parse_options(options)}
    if name not in get_args(BackboneName):
        raise ConfigError(
            f"--backbone is '{name}', expected {', '.join(get_args(BackboneName))} or package.module:Class"
        )
    if options:
        raise ConfigError(f"--backbone-option {options[0]} needs a --backbone of your own, package.module:Class")
    return {"backbone": name}


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(","))
    except ValueError as wrong:
        raise ConfigError(f"--hidden is '{text}', expected widths separated by commas, as in 128,64") from wrong


def _train_auto(
    dataset: Dataset, data: str, options: dict[str, Any], config: TrainConfig, out: Path, console: Console
) -> TrainedModel:
    """Train both heads without the validation rows, then train the chosen ones on all rows. With --validation, the
    first networks are used instead of being trained again."""

    def trained(head: HeadName, train: TrainConfig, place: Path) -> Checkpoint:
        model = ModelConfig(head=head, **options)
        kept = auto.trained_before(place / head, dataset.fingerprint(), model, train)
        return kept or _train(dataset, data, model, train, place / head, console)

    on_trial = config if config.validation else replace(config, validation=auto.VALIDATION)
    place = out if config.validation else out / "trial"
    tried = {head: trained(head, on_trial, place) for head in auto.HEADS}
    choice = auto.choose(dataset, tried["cr"], tried["qr"])
    if config.validation:
        return auto.assemble(choice, tried, dataset)
    return auto.assemble(choice, {head: trained(head, config, out) for head in choice.heads}, dataset)


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder or checkpoint file of `ghostless train`.")],
    data: Annotated[
        str | None, typer.Option(help="Data to evaluate on, as for `ghostless train`. Default: the data of the run.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="TOML or JSON schema of a CSV or Parquet file (docs/data.md). Default: that of the run."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="Evaluate on all rows of the data instead of the run's held-out rows.")
    ] = False,
    plots: Annotated[Path | None, typer.Option(help="Write plots as PNG files to this directory.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a checkpoint on held-out data: NLL, ECE, CRPS, RMSE, coverage, and the pair test of epistemic variance.

    The pair test checks the epistemic variance without ground truth. Two held-out rows with the same id share the
    model's error about that id, so the mean product of their residuals (column "measured") should equal the
    covariance that the model predicts for them (column "served"). "history" is the number of training rows with the
    id; "masked" means that the id was sent as unknown.

    Three sub-commands compare methods: `evaluate table`, `evaluate ablation` and `evaluate ghost`.
    """
    console = Console(stderr=as_json)
    trained = TrainedModel.load(run)
    checkpoint = trained.first
    dataset = load(data or checkpoint.data, schema or checkpoint.schema, target=checkpoint.schema.target)
    if not whole:
        if dataset.fingerprint() != checkpoint.fingerprint:
            raise CheckpointError(
                f"{data or checkpoint.data} is not the data that {run} was trained on, so there are no held-out "
                "rows; use --all to evaluate on all rows"
            )
        held_out = training.split(dataset, checkpoint.train_config)[2]
        if held_out is None:
            raise ConfigError(f"{run} was trained with --test 0, so no rows are held out; use --all with other data")
        dataset = held_out
    judged, figures = run_report.judge(trained, dataset)
    history = judged.epistemic_by_history() if judged.epistemic.any() else []
    files = evaluation.draw(judged, checkpoint, plots) if plots else []
    pairs = trained.judge_pairs(dataset)
    if plots and pairs is not None:
        title = f"{trained.head.upper()}: error that rows of one id share"
        drawn = draw_pairs(pairs.figures, plots / "pairs.png", title)
        files += [] if drawn is None else [drawn]
    extra = {
        "epistemic_by_history": history,
        "pairs": None if pairs is None else pairs.to_dict(),
        "plots": [str(file) for file in files],
    }
    run_report.print_figures(console, f"{run} on {data or checkpoint.data}", figures, as_json, extra)
    if history and not as_json:
        table = RichTable("history", "rows", "epistemic", title=f"epistemic variance by {judged.history_name}")
        for bucket in history:
            table.add_row(bucket["history"], f"{bucket['rows']:,}", f"{bucket['epistemic']:.6f}")
        console.print(table)
    if pairs is not None and not as_json:
        for pair_table in pair_tables(pairs):
            console.print(pair_table)
    for file in files:
        console.print(f"wrote {file}")
