"""Dead units: they are counted, and a network without them answers the same to the last digits."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from learning.backbone import SpectralLinear
from learning.checkpoint import Checkpoint
from learning.config import TrainConfig
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.model import Network
from learning.pruning import prune, unit_use
from research.baselines.network import build_compared
from tests.support.training import small_model

COVARIANCES = ("dense", "lowrank", "diagonal", "per-output")


def built(videos: Table, **options: object) -> tuple[Network, Encoding, dict[str, Tensor]]:
    encoding = Encoding.fit(videos)
    torch.manual_seed(0)
    network = build_compared(small_model(dropout=0.0, **options), encoding).eval()
    with torch.no_grad():
        for parameter in network.head.spread_parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return network, encoding, {name: torch.from_numpy(values) for name, values in encoding.encode(videos).items()}


def kill(network: Network, *dead: tuple[int, list[int]]) -> None:
    """Biases so low that the units of a layer never fire."""
    with torch.no_grad():
        for layer, units in dead:
            network.backbone.layers[layer].get_parameter("bias")[units] = -1000.0


@torch.no_grad()
def answers(network: Network, batch: dict[str, Tensor]) -> list[Tensor]:
    predictive = network.predict(batch)
    return [predictive.mean(), predictive.logit_variance, predictive.cdf(torch.linspace(0.1, 2.9, 8))]


@pytest.mark.parametrize("backbone", ["cross", "sn+cross", "sn", "sn+raw"])
@pytest.mark.parametrize("head", ["qr", "cr"])
def test_dead_units_go_and_no_answer_changes(videos: Table, backbone: str, head: str) -> None:
    activation = "relu" if backbone == "sn+cross" else None
    network, _, batch = built(videos, backbone=backbone, head=head, activation=activation)
    with torch.no_grad():
        for layer in network.backbone.layers:
            layer.get_parameter("weight").mul_(3.0)
            layer.get_parameter("bias").fill_(0.5)
    kill(network, (0, [1, 4, 15]), (1, [0, 7]))
    use = unit_use(network, [batch])
    silent = [int((largest == 0.0).sum()) for largest in use.largest]
    assert silent[0] >= 3
    assert silent[1] >= 2
    assert use.live <= 19 / 24
    before = answers(network, batch)
    assert prune(network, use) == sum(silent)
    assert network.backbone.hidden == network.config.hidden == (16 - silent[0], 8 - silent[1])
    for expected, found in zip(before, answers(network, batch), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_every_form_of_covariance_loses_the_right_columns(videos: Table, covariance: str) -> None:
    network, _, batch = built(videos, head="cr", covariance=covariance)
    kill(network, (1, [2, 3]))
    before = answers(network, batch)
    prune(network, unit_use(network, [batch]))
    for expected, found in zip(before, answers(network, batch), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_a_pruned_network_survives_its_checkpoint(videos: Table, tmp_path: Path) -> None:
    network, encoding, batch = built(videos, head="cr", backbone="sn+raw")
    kill(network, (0, [3]), (1, [2]))
    prune(network, unit_use(network, [batch]))
    config = small_model(dropout=0.0, head="cr", backbone="sn+raw")
    Checkpoint(network, encoding, config, TrainConfig(), "videos", "print").save(tmp_path)
    loaded = Checkpoint.load(tmp_path)
    assert loaded.model_config.hidden == (16, 8), "what was asked for, so that the same run is known again"
    assert loaded.network.backbone.hidden == (15, 7)
    assert isinstance(loaded.network.backbone.layers[0], SpectralLinear)
    for expected, found in zip(answers(network, batch), answers(loaded.network, batch), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_a_layer_without_a_live_unit_keeps_one(videos: Table) -> None:
    network, _, batch = built(videos)
    kill(network, (0, list(range(16))))
    prune(network, unit_use(network, [batch]))
    assert network.backbone.hidden[0] == 1


def test_a_leaky_unit_below_zero_still_counts(videos: Table) -> None:
    network, _, batch = built(videos, backbone="sn+cross")
    kill(network, (0, [1]), (1, [2]))
    assert prune(network, unit_use(network, [batch])) == 0


@pytest.mark.parametrize("options", [{"backbone": "spectral-residual"}, {"baseline": "mdn"}, {"baseline": "sngp"}])
def test_what_can_not_be_cut_is_left_alone(videos: Table, options: dict[str, object]) -> None:
    network, _, batch = built(videos, **options)
    kill(network, (1, [2, 3]))
    before = network.backbone.hidden
    prune(network, unit_use(network, [batch]))
    assert network.backbone.hidden == before


def test_batches_are_counted_as_one(videos: Table) -> None:
    network, _, batch = built(videos)
    whole = unit_use(network, [batch])
    cut = unit_use(
        network, [{name: values[part] for name, values in batch.items()} for part in (slice(0, 900), slice(900, None))]
    )
    for a, b in zip(whole.deviations + whole.largest, cut.deviations + cut.largest, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
