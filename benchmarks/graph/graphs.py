"""The graphs that are compared: VBLL, its twin, the bare network, the fused ensemble and MC-dropout, for both heads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console

from benchmarks.demo_model import stored_repository
from export import graph, network, options, publish
from export.builder import GraphBuilder
from export.graph import Networks
from export.last_layer import last_layer
from export.options import ExportOptions
from export.posterior_nodes import PhiNodes
from export.verification import Report
from ghostless.contract import repository
from ghostless.heads.calibration import PIECES, Calibration
from ghostless.heads.config import HeadName
from learning.checkpoint import Checkpoint
from learning.config import MethodName, ModelConfig, TrainConfig
from learning.data.load import load
from learning.training import Trainer

BASE_ROWS = 3000
MEMBERS = 5
SAMPLES = 25
DROPOUT = 0.1
# The paper's network: the bound of VBLL's cost relative to a bare network was set for it, and depends on its size.
PAPER: dict[str, Any] = {"backbone": "sn+raw", "hidden": (256, 128, 64)}
HEADS: tuple[HeadName, ...] = get_args(HeadName)


@dataclass(frozen=True)
class Graph:
    """One file to measure. `report` is its verification; the bare network is not served and has none."""

    head: str
    kind: str
    path: Path
    report: Report | None


# A map that is not the identity, because the demo's may be, which would cost nothing.
MAP = tuple(float(np.float32(0.8 * u + 0.2 * u * u)) for u in np.linspace(0.0, 1.0, PIECES + 1))


def trained(head: HeadName, method: MethodName, seed: int, rows: int, **changes: Any) -> Checkpoint:
    """A real network with the default shape except for `changes`; its cost does not depend on how well it was
    trained."""
    dataset = load(f"synthetic:{rows}")
    # Without calibration rows no map is fitted, and the verification has none to compare MAP with.
    config = TrainConfig(epochs=1, seed=seed, calibration=0.0)
    model = ModelConfig(head=head, method=method, **changes)
    checkpoint = Trainer(dataset, f"synthetic:{rows}", model, config).run()
    checkpoint.model.head.calibration = Calibration(1.1 if head == "cr" else 1.0, MAP)
    return checkpoint


def demo(root: Path) -> Path:
    """The current demo, trained on as many rows as the stored one, with a map. For timing only: with three steps of
    training and MAP, there is nothing to verify."""
    checkpoint = trained("cr", "vbll", 0, BASE_ROWS)
    built = graph.build(Networks.ensemble([checkpoint]), options.resolve(ExportOptions(), checkpoint), "fp32")
    path = root / "demo.onnx"
    path.write_bytes(built.model({}).SerializeToString())
    return path


def stored_demo(root: Path) -> Path:
    """The demo of fd7b8c1, which was trained on BASE_ROWS rows."""
    return stored_repository(root) / "demo" / "1" / "model.onnx"


def build_all(root: Path, rows: int, console: Console) -> list[Graph]:
    """Train, export and verify every graph into a repository at `root`."""
    graphs = []
    for head in HEADS:
        console.print(f"[dim]{head}: training a VBLL network and {MEMBERS} deterministic ones, exporting all[/]")
        members = [trained(head, "deterministic", seed, rows) for seed in range(MEMBERS)]
        dropping = trained(head, "deterministic", 0, rows, dropout=DROPOUT)
        variants = {
            "vbll": Networks.ensemble([trained(head, "vbll", 0, rows)]),
            "deterministic": Networks.ensemble(members[:1]),
            "ensemble": Networks.ensemble(members),
            "mc-dropout": Networks.mc_dropout(dropping, SAMPLES),
            "mc-dropout-fixed": Networks.fixed_dropout(dropping, SAMPLES),
            "paper": Networks.ensemble([trained(head, "vbll", 0, rows, **PAPER)]),
        }
        for kind, networks in variants.items():
            name = f"{head}-{kind}"
            version, report = publish.export_model(networks, name, root, ExportOptions())
            graphs.append(Graph(head, kind, repository.find(root, name).model_file(version), report))
        bare = trained(head, "deterministic", 0, rows, **PAPER)
        graphs.append(Graph(head, "bare", _bare(bare, root / f"{head}-bare.onnx"), None))
    return graphs


def _bare(checkpoint: Checkpoint, path: Path) -> Path:
    """The deterministic network with its raw outputs (quantiles or logits) only."""
    g = GraphBuilder()
    inputs = {feature.name: g.input(feature.name, feature.type) for feature in checkpoint.schema.features}
    phi = PhiNodes(*network.phi_parts(g, checkpoint, inputs), checkpoint.model.backbone.width)
    layer = last_layer(checkpoint)
    g.output("outputs", phi.product(g, layer.weight, layer.bias, "last"), len(layer.bias))
    path.write_bytes(g.model({}).SerializeToString())
    return path
