"""`ghostless export`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.console import Console

from export import publish
from export.errors import OptionError
from export.graph import Networks
from export.options import LEVELS, ExportOptions
from export.triton_config import TritonOptions
from ghostless.contract import repository
from learning.trained import TrainedModel

MOST_GRID_POINTS = 10_000


def export(
    runs: Annotated[list[Path], typer.Argument(help="A run of `ghostless train`; several make an ensemble.")],
    name: Annotated[str, typer.Option(help="Name of the model in the repository.")],
    root: Annotated[Path, typer.Option("--repository", help="Folder to publish the model in.")] = Path(
        "model_repository"
    ),
    levels: Annotated[str, typer.Option(help="Quantile levels to return, separated by commas.")] = ",".join(
        map(str, LEVELS)
    ),
    edges: Annotated[str, typer.Option(help="Bin edges to return, a subset of the model's knots. Default: all.")] = "",
    grid: Annotated[str, typer.Option(help="Points for density outputs: LOW:HIGH:COUNT or comma-separated.")] = "",
    outputs: Annotated[
        str, typer.Option(help="Outputs of the graph, comma-separated. Default: all but emg_density.")
    ] = "",
    precision: Annotated[
        Literal["fp32", "fp16"], typer.Option(help="Precision of the hidden layers; fp16 is for GPUs.")
    ] = "fp32",
    mc_dropout: Annotated[
        int, typer.Option(help="Export as MC-dropout with this many passes and new random masks for each row.")
    ] = 0,
    mc_dropout_fixed: Annotated[
        int, typer.Option(help="Export as MC-dropout with this many fixed masks, shared by all rows.")
    ] = 0,
    tensorrt: Annotated[bool, typer.Option(help="Configure Triton to run the model with TensorRT on GPU.")] = False,
    cuda_graphs: Annotated[
        bool, typer.Option(help="Configure Triton to capture CUDA graphs (needs --tensorrt).")
    ] = False,
    promote: Annotated[bool, typer.Option(help="Put the new version in service.")] = True,
    skip_existing: Annotated[bool, typer.Option(help="Do nothing if the repository already has the model.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verification report as JSON.")] = False,
) -> None:
    """Export a checkpoint as one ONNX graph, verify it against the model and publish it as a new version."""
    console = Console(stderr=as_json)
    if skip_existing and root.is_dir() and name in repository.scan(root):
        console.print(f"{root / name} already exists; nothing to do")
        return
    trained = [TrainedModel.load(run) for run in runs]
    if mc_dropout and mc_dropout_fixed:
        raise OptionError("--mc-dropout and --mc-dropout-fixed exclude each other; give only one")
    drops = bool(mc_dropout or mc_dropout_fixed)
    if drops and len(runs) > 1:
        raise OptionError("MC-dropout exports exactly one run; an ensemble of several runs cannot use it")
    if (drops or len(runs) > 1) and any(each.head == "pool" for each in trained):
        raise OptionError("a run of --head auto that is a pool of two heads cannot be in an ensemble or use MC-dropout")
    if len(runs) > 1:
        networks = Networks.ensemble([each.first for each in trained])
    elif mc_dropout:
        networks = Networks.mc_dropout(trained[0].first, mc_dropout)
    elif mc_dropout_fixed:
        networks = Networks.fixed_dropout(trained[0].first, mc_dropout_fixed)
    else:
        networks = Networks.trained(trained[0])
    options = ExportOptions(
        levels=_numbers("--levels", levels),
        edges=_numbers("--edges", edges),
        grid=_grid(grid),
        outputs=tuple(word.strip() for word in outputs.split(",") if word.strip()),
        precision=precision,
    )
    triton = TritonOptions(tensorrt=tensorrt, cuda_graphs=cuda_graphs)
    with console.status(f"building and verifying {name} ({networks.method})"):
        version, report = publish.export_model(networks, name, root, options, promote, triton)
    if as_json:
        print(json.dumps({"model": name, "version": version, **json.loads(report.to_json())}))
        return
    error = report.largest_error
    closest = (
        "averages agree with torch's dropout" if error is None else f"largest relative error against torch {error:.1e}"
    )
    console.print(
        f"{root / name / str(version)}: {report.facts['nodes']} nodes, {report.facts['bytes'] / 1e6:.1f} MB; "
        f"{len(report.checks)} checks passed, {closest} (report.md beside it)"
    )


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError as error:
        raise OptionError(f"{option}: expected numbers separated by commas, got {text!r}") from error


def _grid(text: str) -> tuple[float, ...]:
    if text.count(":") != 2:
        return _numbers("--grid", text)
    words = [_numbers("--grid", word) for word in text.split(":")]
    low, high, count = (word[0] if len(word) == 1 else float("nan") for word in words)
    if not low < high or not 2 <= count <= MOST_GRID_POINTS:
        raise OptionError(
            f"--grid: expected LOW:HIGH:COUNT with LOW < HIGH and COUNT from 2 to {MOST_GRID_POINTS}, got {text!r}"
        )
    return tuple(np.linspace(low, high, int(count)).tolist())
