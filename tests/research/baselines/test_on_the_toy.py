"""Every method on the bimodal toy: who answers with a value that never happens, and what each is known for.

Targets lie near 0 or near 1 (both at x = 0, half and half), never between: 0.5 is the ghost value.
"""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from ghostless.heads.predictive import Predictive
from learning.checkpoint import Checkpoint
from learning.config import ModelConfig, TrainConfig
from learning.data.table import Table
from learning.data.toy import TOY_SCHEMA, toy
from learning.errors import CheckpointError
from learning.evaluation import evaluate
from learning.training import Trainer
from research.baselines.distributions import GaussianMixture
from research.baselines.dropout import mc_dropout
from research.baselines.network import build_compared

TRAIN = TrainConfig(epochs=12, batch_rows=256, learning_rate=5e-3, test=0.0)
SHAPE = {"hidden": (64, 32), "spectral_bound": 3.0, "dropout": 0.0}
METHODS: dict[str, dict[str, object]] = {
    "gaussian": {"baseline": "gaussian"},
    "sngp": {"baseline": "sngp", "random_features": 128},
    "vbll": {"baseline": "vbll"},
    "der": {"baseline": "evidential"},
    "mdn": {"baseline": "mdn"},
    "qr": {"head": "qr", "method": "deterministic"},
    "cr": {"head": "cr", "method": "deterministic"},
    "cr-sngp": {"head": "cr", "baseline": "cr-sngp", "random_features": 128},
}
UNIMODAL, MULTIMODAL = ("gaussian", "sngp", "vbll", "der"), ("mdn", "qr", "cr", "cr-sngp")


@cache
def trained(name: str) -> Checkpoint:
    config = ModelConfig(**{**SHAPE, **METHODS[name]})  # type: ignore[arg-type]  # options of many types
    return Trainer(toy(6000, seed=0), "toy", config, TRAIN, build=build_compared).run()


def inputs(x: list[float]) -> dict[str, Tensor]:
    values = np.array(x, np.float32)
    table = Table(TOY_SCHEMA, {"x": values}, np.zeros(len(values), np.float32))
    return {key: torch.from_numpy(column) for key, column in trained("gaussian").encoding.encode(table).items()}


def at(name: str, *x: float) -> Predictive:
    network, batch = trained(name).network, inputs(list(x))
    with torch.no_grad():
        return network.predict(batch)


def ghost_share(name: str) -> float:
    """Mass between the modes, where the truth has none: at x = 0, within 0.25 of the ghost value."""
    low, high = at(name, 0.0).cdf(torch.tensor([0.25, 0.75]))[0]
    return float(high - low)


@pytest.mark.parametrize("name", UNIMODAL)
def test_a_unimodal_method_answers_with_the_ghost_value(name: str) -> None:
    """Both its mean and its densest point lie where nothing ever happens."""
    predicted = at(name, 0.0)
    grid = torch.linspace(-0.5, 1.5, 401)
    densest = grid[predicted.density(grid)[0].argmax()].item()
    assert 0.3 < predicted.mean().item() < 0.7
    assert 0.3 < densest < 0.7 or name == "der"
    assert ghost_share(name) > 0.25


@pytest.mark.parametrize("name", MULTIMODAL)
def test_a_multimodal_method_has_no_ghost(name: str) -> None:
    """The mean is still 0.5, but next to no mass lies there and both modes have theirs."""
    predicted = at(name, 0.0)
    assert 0.35 < predicted.mean().item() < 0.65
    assert ghost_share(name) < 0.1
    lower = float(predicted.cdf(torch.tensor([0.25]))[0])
    assert 0.3 < lower < 0.7


def test_likelihood_tells_them_apart() -> None:
    """The worst multimodal method is better than the best unimodal one."""
    held_out = toy(2000, seed=1)
    nll = {name: evaluate(trained(name), held_out).metrics().nll for name in METHODS}
    assert max(nll[name] for name in MULTIMODAL) < min(nll[name] for name in UNIMODAL) - 0.2, nll


def test_mixture_density_network_finds_both_modes_and_their_width() -> None:
    predicted = at("mdn", 0.0)
    assert isinstance(predicted, GaussianMixture)
    for mode in (0.0, 1.0):
        near = (predicted.locations[0] - mode).abs() < 0.15
        assert predicted.weights[0][near].sum().item() == pytest.approx(0.5, abs=0.15)
    assert not at("mdn", 0.0, 50.0).epistemic().any(), "an MDN has no word for what it does not know"


def test_gaussian_width_covers_both_modes() -> None:
    """Var(y | x = 0) = 1/4 + 0.06^2."""
    assert at("gaussian", 0.0).aleatoric().item() == pytest.approx(0.2536, rel=0.2)


def test_sngp_knows_where_it_has_no_data_and_returns_to_its_prior() -> None:
    inside, outside, far = at("sngp", 0.0, 8.0, 500.0).epistemic().tolist()
    assert outside > 5 * inside
    assert far == pytest.approx(1.0, rel=0.5), "prior_scale^2 times |h|^2, about 1"


def test_evidential_uncertainty_is_learnt_where_there_is_data_only() -> None:
    """Its epistemic part is an output of the network like any other (Meinert et al. 2023): inside the data it follows
    the noise, since the loss ties evidence to the fit, and it is no posterior that shrinks with rows."""
    noisy, clear = at("der", 0.0, -2.0).epistemic().tolist()
    assert noisy > 2 * clear


def test_dropout_passes_disagree_and_leave_the_network_as_it_was() -> None:
    checkpoint = trained("qr")
    network, batch = checkpoint.network, inputs([0.0, 1.0])
    network.backbone.dropout.p = 0.2
    try:
        with torch.no_grad():
            before = network.predict(batch).mean()
            pool = mc_dropout(network, network.predict, passes=10)(batch)
            again = mc_dropout(network, network.predict, passes=10)(batch)
            after = network.predict(batch).mean()
    finally:
        network.backbone.dropout.p = 0.0
    assert (pool.epistemic() > 0).all()
    assert torch.equal(pool.mean(), again.mean()), "the same seed drops the same units"
    assert torch.equal(before, after)


def test_a_baseline_is_no_model_to_serve() -> None:
    with pytest.raises(CheckpointError, match="baseline"):
        _ = trained("mdn").model
