"""Heads inside a whole model: where they start, what their losses do, what they answer."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ghostless.heads.histogram import HistogramHead
from ghostless.heads.quantile import QuantileHead, midpoint_levels
from learning.checkpoint import build_model
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.model import Model
from tests.support.training import small_model

HEADS = ("qr", "cr")
COVARIANCES = ("dense", "lowrank", "diagonal", "per-output")


def built(videos: Table, **options: object) -> tuple[Model, dict[str, Tensor], Tensor]:
    """An untrained model, and the encoded rows and targets."""
    encoding = Encoding.fit(videos)
    torch.manual_seed(0)
    model = build_model(small_model(**options), encoding)
    batch = {name: torch.from_numpy(values) for name, values in encoding.encode(videos).items()}
    return model, batch, torch.from_numpy(videos.target)


class TestStart:
    def test_qr_starts_at_the_marginals_quantiles(self, videos: Table) -> None:
        model, _, y = built(videos, head="qr", bins=40)
        expected = np.quantile(y.numpy(), midpoint_levels(20).numpy())
        head = model.head
        assert isinstance(head, QuantileHead)
        start = np.interp(head.posterior.bias.detach(), head.z, head.edges)
        np.testing.assert_allclose(start, expected, atol=0.02)

    def test_cr_starts_at_the_marginals_frequencies(self, videos: Table) -> None:
        model, _, y = built(videos, head="cr")
        frequencies = np.histogram(y.numpy(), bins=model.head.knots.double().numpy())[0] / len(y)
        start = torch.softmax(model.head.posterior.bias.detach(), -1)
        np.testing.assert_allclose(start, frequencies, atol=0.005)


def test_cr_labels_are_histogram_bins_with_the_ends_in_the_outer_ones(videos: Table) -> None:
    head = built(videos, head="cr", binning="uniform")[0].head
    assert isinstance(head, HistogramHead)
    y = torch.tensor([0.0, 0.2499, 0.25, 2.7501, 3.0, -1.0, 7.0])
    assert head.labels(y).tolist() == [0, 0, 1, 11, 11, 0, 11]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_loss_and_its_gradients_are_finite_for_all_that_is_trained(videos: Table, head: str, covariance: str) -> None:
    model, batch, y = built(videos, head=head, covariance=covariance)
    loss, kl = model.train()(batch, y)
    (loss + kl / len(y)).backward()
    assert kl.item() > 0
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not (name.endswith("log_scales") and covariance == "per-output"):
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
    assert any(p.grad is not None and p.grad.any() for p in model.head.posterior.covariance_parameters())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("spread", [-14.0, 9.0])
def test_gradients_stay_finite_at_extreme_spreads(videos: Table, head: str, spread: float) -> None:
    """s from about 1e-6 to 1e4."""
    model, batch, y = built(videos, head=head, covariance="diagonal")
    with torch.no_grad():
        model.head.posterior.get_parameter("log_sd").fill_(spread)
    loss, kl = model.train()(batch, y)
    (loss + kl / len(y)).backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("head", HEADS)
def test_without_spread_the_vbll_loss_is_its_twins(videos: Table, head: str) -> None:
    losses = []
    for method in ("vbll", "deterministic"):
        model, batch, y = built(videos, head=head, method=method, covariance="diagonal")
        if method == "vbll":
            with torch.no_grad():
                model.head.posterior.get_parameter("log_sd").fill_(-15.0)
        losses.append(model.eval()(batch, y)[0].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_answers_have_one_row_each_and_are_distributions(videos: Table, head: str, covariance: str) -> None:
    model, batch, _ = built(videos, head=head, covariance=covariance)
    with torch.no_grad():
        predictive = model.eval().predict({name: values[:50] for name, values in batch.items()})
    for answer in (predictive.mean(), predictive.aleatoric(), predictive.epistemic(), predictive.logit_variance):
        assert answer.shape == (50,)
        assert answer.isfinite().all()
    assert (predictive.epistemic() > 0).all()
    quantiles = predictive.quantiles(torch.tensor([0.1, 0.5, 0.9]))
    assert quantiles.shape == (50, 3)
    assert (quantiles.diff(dim=-1) > 0).all()
    assert (predictive.cdf(torch.tensor([0.5, 1.5])).diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("backbone", ["cross", "sn+cross", "sn", "sn+raw", "spectral-residual"])
def test_phi_carries_what_its_variant_says(videos: Table, backbone: str) -> None:
    model, batch, _ = built(videos, backbone=backbone)
    phi = model.eval().phi(batch)
    x = model.towers(batch)
    assert phi.shape[1] == model.head.posterior.mean.shape[1]
    if model.backbone.raw:
        torch.testing.assert_close(phi[:, 8:], model.backbone.expand(x))
    else:
        assert phi.shape[1] == 8


def test_levels_are_midpoints() -> None:
    assert midpoint_levels(4).tolist() == [0.125, 0.375, 0.625, 0.875]


def test_qr_kl_is_on_the_scale_of_its_averaged_loss(videos: Table) -> None:
    head = built(videos, head="qr")[0].head
    assert isinstance(head, QuantileHead)
    assert head.kl().item() == pytest.approx(head.posterior.kl().item() / 20, rel=1e-6)
