"""A graph that draws its masks passes as torch's MC-dropout, and one that draws them otherwise does not."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export import network
from export.builder import GraphBuilder, Value
from export.graph import Networks
from export.verification import verify
from ghostless.contract import metadata
from learning.checkpoint import Checkpoint
from tests.support import torch_models as models

PASSES = 6


def drawn(rate: float = 0.3, **changes: str) -> Networks:
    checkpoint = models.shaken(models.EVERY_KIND, models.config(method="deterministic", dropout=rate, **changes))
    return Networks.mc_dropout(checkpoint, PASSES)


def failures(networks: Networks, directory: Path) -> list[str]:
    served = models.serve(networks, directory)
    report = verify(served, networks, served.layout, "fp32")
    return [check.name for check in report.checks if not check.ok]


@pytest.mark.parametrize("backbone", ["sn", "sn+raw", "spectral-residual"])
@pytest.mark.parametrize("head", ["qr", "cr"])
def test_the_graph_draws_as_torch_does(head: str, backbone: str, tmp_path: Path) -> None:
    networks = drawn(head=head, backbone=backbone)
    assert (networks.method, networks.members) == ("mc-dropout", PASSES)
    assert failures(networks, tmp_path) == []


def test_every_row_and_call_has_masks_of_its_own(tmp_path: Path) -> None:
    served = models.serve(drawn(), tmp_path)
    one = {name: np.repeat(values[:1], 50) for name, values in models.some_rows(served.networks.first, 1).items()}
    first, second = (served(one)[metadata.MEAN] for _ in range(2))
    assert len(np.unique(first)) > 40
    assert not np.array_equal(first, second)


def other_rate(g: GraphBuilder, op: str, attributes: dict[str, float]) -> None:
    if op == "RandomUniformLike":
        attributes["high"] *= 2


def same_draws(g: GraphBuilder, op: str, attributes: dict[str, float]) -> None:
    """Every pass from one seed: the passes share their masks."""
    if op == "RandomUniformLike":
        attributes |= {"seed": 1.0}


@pytest.mark.parametrize("spoil", [other_rate, same_draws])
def test_other_draws_are_caught(
    spoil: Callable[[GraphBuilder, str, dict[str, float]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = GraphBuilder.node

    def node(
        g: GraphBuilder, op: str, inputs: Sequence[Value | None], name: str = "", domain: str = "", **attributes: Any
    ) -> Value:
        spoil(g, op, attributes)
        return honest(g, op, inputs, name, domain, **attributes)

    monkeypatch.setattr(GraphBuilder, "node", node)
    assert [name for name in failures(drawn(), tmp_path) if "torch's dropout" in name]


def test_masks_that_rows_share_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    networks = drawn()
    fixed = Networks.fixed_dropout(networks.first, PASSES)
    served = models.serve(fixed, tmp_path)
    report = verify(served, networks, served.layout, "fp32")
    assert "mean: spread over passes against torch's dropout, ratio less 1" in report.failures()


def test_a_layer_without_dropout_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = network.dropout_passes

    def once(g: GraphBuilder, checkpoint: Checkpoint, x: Value, passes: int, dtype: type) -> list[Value]:
        outputs = honest(g, checkpoint, x, passes, dtype)
        last = {node.output[0]: node.input[2] for node in g.nodes if node.name.startswith("drop/kept")}
        return [g.named(last[output]) for output in outputs]

    monkeypatch.setattr(network, "dropout_passes", once)
    assert [name for name in failures(drawn(), tmp_path) if "torch's dropout" in name]
