"""Towers and backbones: the spectral bound is kept, ids drop only in training, phi keeps distances."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from learning.backbone import CROSS_GAIN, RAMP_WIDTH, Backbone, CrossLayer, SpectralLinear, Towers, activate
from learning.config import ActivationName, ModelConfig
from learning.data.encoding import position_key, z_key
from learning.schema import Feature
from tests.support.training import small_model

FEATURES = (
    Feature("user", kind="id", role="context", embedding=4),
    Feature("length", kind="bucket", type="float32", embedding=3),
    Feature("x", kind="number", type="float32", embedding=2),
)
PIECES = {"length": 6, "x": 5}
VARIANTS = ("sn", "sn+raw", "spectral-residual")


def towers(**options: object) -> Towers:
    torch.manual_seed(0)
    return Towers(FEATURES, {"user": 5, "length": 10, "x": 4}, PIECES, small_model(**options))


def batch(rows: int = 400) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "user": torch.randint(1, 5, (rows,), generator=generator),
        "length": torch.randint(10, (rows,), generator=generator),
        "x": torch.randint(4, (rows,), generator=generator),
        **{z_key(name): torch.randn(rows, generator=generator) for name in PIECES},
        **{position_key(name): torch.rand(rows, generator=generator) * most for name, most in PIECES.items()},
    }


def largest_singular_value(weight: Tensor) -> float:
    return float(torch.linalg.svdvals(weight.detach().double())[0].item())


class TestSpectralLinear:
    @pytest.mark.parametrize("bound", [0.5, 1.0, 3.0])
    def test_a_weight_beyond_its_bound_is_folded_down_to_it(self, bound: float) -> None:
        layer = SpectralLinear(20, 10, bound)
        with torch.no_grad():
            layer.weight.mul_(50.0)
        assert largest_singular_value(layer.folded()) == pytest.approx(bound, rel=1e-5)

    def test_a_weight_within_its_bound_is_left_alone(self) -> None:
        layer = SpectralLinear(20, 10, 1.0)
        with torch.no_grad():
            layer.weight.mul_(0.3)
        torch.testing.assert_close(layer.folded(), layer.weight.detach())

    def test_training_approaches_what_evaluation_uses(self) -> None:
        torch.manual_seed(0)
        layer, x = SpectralLinear(20, 10, 1.0), torch.randn(5, 20)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(10, 20))
        for _ in range(200):
            trained = layer(x)
        torch.testing.assert_close(trained, layer.eval()(x), rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("kind", VARIANTS)
    def test_the_bound_holds_after_steps_that_push_against_it(self, kind: str) -> None:
        torch.manual_seed(0)
        backbone = Backbone(6, small_model(backbone=kind, spectral_bound=1.2))
        optimizer = torch.optim.Adam(backbone.parameters(), lr=0.05)
        x = torch.randn(64, 6)
        for _ in range(60):
            optimizer.zero_grad()
            (-backbone(x).square().mean()).backward()
            optimizer.step()
        raw = [largest_singular_value(layer.get_parameter("weight")) for layer in backbone.layers]
        assert max(raw) > 1.5, "the steps must push against the bound, or this test shows nothing"
        for layer in backbone.layers:
            assert isinstance(layer, SpectralLinear)
            assert largest_singular_value(layer.folded()) <= layer.bound * (1 + 1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_what_is_judged_between_steps_is_the_weight_of_now(fused: bool) -> None:
    """Evaluation keeps the folded weight; no optimizer may change the weight behind its back."""
    torch.manual_seed(0)
    layer = SpectralLinear(6, 4, bound=0.5)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, fused=fused)
    x = torch.randn(8, 6)
    for _ in range(3):
        layer.train()
        layer(x).square().mean().backward()
        optimizer.step()
        layer.eval()
        norm = torch.linalg.matrix_norm(layer.weight.detach(), ord=2)
        expected = layer.weight.detach() * min(1.0, 0.5 / norm.item())
        torch.testing.assert_close(layer.folded(), expected)
        torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, expected, layer.bias))


class TestTowers:
    def test_lays_embeddings_and_numbers_side_by_side(self) -> None:
        """An id's embedding; then of each number its bucket's embedding, z and mapped ramps."""
        model = towers().eval()
        x = model(batch())
        assert x.shape == (400, 4 + (3 + 1 + RAMP_WIDTH) + (2 + 1 + RAMP_WIDTH))
        assert model.width == x.shape[1]
        torch.testing.assert_close(x[:, :4], model.table("user")[batch()["user"]])
        torch.testing.assert_close(x[:, 4:7], model.table("length")[batch()["length"]])
        torch.testing.assert_close(x[:, 7], batch()[z_key("length")])
        torch.testing.assert_close(x[:, 8 + RAMP_WIDTH + 2], batch()[z_key("x")])

    def test_ramps_interpolate_between_the_sums_of_their_weights(self) -> None:
        model = towers().eval()
        rows = {**batch(4), position_key("length"): torch.tensor([0.0, 1.0, 2.25, 6.0])}
        weight = model.ramp_weight("length")
        expected = [torch.zeros(RAMP_WIDTH), weight[0], weight[0] + weight[1] + 0.25 * weight[2], weight.sum(0)]
        torch.testing.assert_close(model(rows)[:, 8 : 8 + RAMP_WIDTH], torch.stack(expected))

    def test_ids_drop_to_row_0_in_training_only(self) -> None:
        model = towers(id_dropout=0.3)
        dropped = (model.train()(batch(20_000))[:, :4] == model.table("user")[0]).all(-1)
        assert dropped.float().mean().item() == pytest.approx(0.3, abs=0.02)
        torch.testing.assert_close(model.eval()(batch())[:, :4], model.table("user")[batch()["user"]])


class TestCrossLayer:
    @pytest.mark.parametrize("rank", [2, 3, 50])
    def test_gates_every_column_by_a_linear_map_of_all(self, rank: int) -> None:
        torch.manual_seed(0)
        layer, x = CrossLayer(6, rank), torch.randn(5, 6)
        with torch.no_grad():
            layer.bias.normal_()
        matrix = torch.eye(6)
        for factor in layer.factors:
            matrix = matrix @ factor
        assert torch.linalg.matrix_rank(matrix) == (rank if rank == 2 else 6)
        torch.testing.assert_close(layer(x), CROSS_GAIN * x * (x @ matrix + layer.bias))

    @pytest.mark.parametrize("kind", ["cross", "sn+cross"])
    def test_its_output_follows_x_into_the_first_layer(self, kind: str) -> None:
        backbone, x = Backbone(6, small_model(backbone=kind)).eval(), torch.randn(5, 6)
        assert backbone.cross is not None
        expanded = backbone.expand(x)
        torch.testing.assert_close(expanded, torch.cat([x, backbone.cross(x)], -1))
        assert backbone.inputs == 12
        assert backbone(expanded).shape == (5, 8)


@pytest.mark.parametrize(
    ("kind", "activation", "negative"),
    [("cross", None, -0.2689), ("sn+cross", None, -0.1), ("sn", None, 0.0), ("sn", "silu", -0.2689)],
)
def test_every_backbone_has_its_activation(kind: str, activation: str | None, negative: float) -> None:
    backbone = Backbone(6, small_model(backbone=kind, activation=activation))
    assert activate(torch.tensor(-1.0), backbone.activation).item() == pytest.approx(negative, abs=1e-4)


class TestDistances:
    @pytest.mark.parametrize("kind", VARIANTS)
    def test_all_variants_are_lipschitz(self, kind: str) -> None:
        torch.manual_seed(0)
        backbone = Backbone(6, small_model(backbone=kind)).eval()
        a, b = torch.randn(200, 6), torch.randn(200, 6)
        stretch = (backbone(a) - backbone(b)).norm(dim=-1) / (a - b).norm(dim=-1)
        layers = len(backbone.layers)
        limit = 2.0 ** (layers - 1) if kind == "spectral-residual" else 1.0
        assert stretch.max().item() <= limit * (1 + 1e-5)

    def test_raw_keeps_at_least_the_distance_of_the_inputs(self) -> None:
        torch.manual_seed(0)
        backbone = Backbone(6, small_model(backbone="sn+raw")).eval()
        assert backbone.raw
        a, b = torch.randn(200, 6), torch.randn(200, 6)
        phi_a, phi_b = (torch.cat([backbone(x), x], -1) for x in (a, b))
        assert ((phi_a - phi_b).norm(dim=-1) >= (a - b).norm(dim=-1)).all()

    @pytest.mark.parametrize("activation", ["relu", "leaky"])
    def test_residual_blocks_keep_distances_apart(self, activation: ActivationName) -> None:
        """Whatever training makes of the weights: a block h + g(h) with |g| <= 0.95 keeps at least 0.05 of a length."""
        torch.manual_seed(0)
        config = ModelConfig(backbone="spectral-residual", hidden=(16, 16, 16), activation=activation)
        backbone = Backbone(6, config).eval()
        assert not backbone.raw
        with torch.no_grad():
            for layer in backbone.layers:
                layer.get_parameter("weight").normal_(0.0, 3.0)
        a, b = torch.randn(200, 6), torch.randn(200, 6)
        first, *blocks = zip(backbone.activations(a), backbone.activations(b), strict=True)
        for before, after in pairwise([first, *blocks]):
            stretch = (after[0] - after[1]).norm(dim=-1) / (before[0] - before[1]).norm(dim=-1)
            assert stretch.min().item() >= 0.05
            assert stretch.max().item() <= 1.95 + 1e-5

    def test_the_residual_network_loses_what_its_first_layer_loses(self) -> None:
        """So it is not bi-Lipschitz in a wider x, which docs/learning.md says; `sn+raw` is."""
        torch.manual_seed(0)
        residual, raw = (
            Backbone(24, ModelConfig(backbone=kind, hidden=(16, 16))).eval() for kind in ("spectral-residual", "sn+raw")
        )
        first = residual.layers[0]
        assert isinstance(first, SpectralLinear)
        lost = torch.linalg.svd(first.folded()).Vh[-1]
        a = torch.randn(200, 24)
        torch.testing.assert_close(residual(a), residual(a + 100.0 * lost), rtol=0.0, atol=1e-3)
        phi, moved = (torch.cat([raw(x), x], -1) for x in (a, a + 100.0 * lost))
        assert ((phi - moved).norm(dim=-1) >= 100.0 * (1 - 1e-5)).all()
