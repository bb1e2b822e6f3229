"""Finds hidden units that have no effect, and removes them without changing the network's outputs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from learning.backbone import SpectralLinear
from learning.model import Model, Network

# A unit is live if its activation has at least this standard deviation over rows.
LIVE_SD = 1e-3
# A unit whose activation never exceeds this value has no effect in float32.
DEAD_VALUE = 1e-7


@dataclass(frozen=True)
class UnitUse:
    """Standard deviation and largest absolute value of the activation of every hidden unit over some rows; a tensor
    [width] for each layer."""

    deviations: tuple[Tensor, ...]
    largest: tuple[Tensor, ...]

    @property
    def live(self) -> float:
        """Share of all hidden units that are live."""
        return (torch.cat(self.deviations) > LIVE_SD).double().mean().item()


@torch.no_grad()
def unit_use(network: Network, batches: Iterable[Mapping[str, Tensor]]) -> UnitUse:
    """The use of the units of a network in evaluation mode."""
    rows = 0
    sums: list[Tensor] = []
    squares: list[Tensor] = []
    largest: list[Tensor] = []
    for batch in batches:
        layers = network.activations(batch)
        found = [(h.double().sum(0), h.double().square().sum(0), h.abs().amax(0)) for h in layers]
        if not rows:
            sums, squares, largest = (list(column) for column in zip(*found, strict=True))
        else:
            for place, (total, square, most) in enumerate(found):
                sums[place] += total
                squares[place] += square
                largest[place] = torch.maximum(largest[place], most)
        rows += len(layers[0])
    deviations = [
        (square / rows - (total / rows).square()).clamp(min=0.0).sqrt()
        for total, square in zip(sums, squares, strict=True)
    ]
    return UnitUse(tuple(deviations), tuple(largest))


@torch.no_grad()
def prune(network: Network, use: UnitUse) -> int:
    """Remove, in place, the units whose activation is 0 on all rows of `use`; returns their number.

    Each layer keeps at least one unit. The last hidden layer is part of phi, so it is pruned only for heads that can be
    served. Residual blocks add to their input, so they are not pruned. A user-supplied backbone is not pruned either.
    """
    if network.config.own or network.backbone.residual:
        return 0
    layers = list(network.backbone.layers)
    removed = 0
    for place, largest in enumerate(use.largest):
        last = place + 1 == len(layers)
        if last and not isinstance(network, Model):
            continue
        kept = _kept(largest)
        if len(kept) == len(largest):
            continue
        removed += len(largest) - len(kept)
        _keep_outputs(layers[place], kept)
        if not last:
            _keep_inputs(layers[place + 1], kept)
        else:
            assert isinstance(network, Model)
            _keep_features(network, kept, len(largest))
    if removed:
        network.config = replace(network.config, hidden=network.backbone.hidden)
    return removed


def _kept(largest: Tensor) -> Tensor:
    """Positions [k] of the units to keep, at least one."""
    kept = torch.nonzero(largest > DEAD_VALUE).squeeze(-1)
    return kept if len(kept) else largest.argmax().unsqueeze(0)


def _keep_outputs(layer: nn.Module, kept: Tensor) -> None:
    _set_weight(layer, _served_weight(layer)[kept])
    layer.register_parameter("bias", nn.Parameter(layer.get_parameter("bias")[kept]))


def _keep_inputs(layer: nn.Module, kept: Tensor) -> None:
    _set_weight(layer, _served_weight(layer)[:, kept])


def _served_weight(layer: nn.Module) -> Tensor:
    # The spectral norm is that of the whole matrix, so it is folded in before rows are removed.
    return layer.folded() if isinstance(layer, SpectralLinear) else layer.get_parameter("weight")


def _set_weight(layer: nn.Module, weight: Tensor) -> None:
    layer.register_parameter("weight", nn.Parameter(weight.clone()))
    if isinstance(layer, SpectralLinear):
        outputs, inputs = weight.shape
        layer.register_buffer("u", nn.functional.normalize(torch.randn(outputs), dim=0))
        layer.register_buffer("v", nn.functional.normalize(torch.randn(inputs), dim=0))
        layer.eval()
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = weight.shape


def _keep_features(model: Model, kept: Tensor, width: int) -> None:
    """Keep the columns `kept` of f in phi = [f, ...], where f has `width` columns, and all other columns."""
    posterior = model.head.posterior
    beside = torch.arange(width, posterior.mean.shape[1])
    columns = torch.cat([kept, beside])
    cut = {"mean": posterior.mean[:, columns]}
    if posterior.covariance in ("lowrank", "diagonal"):
        cut["log_sd"] = posterior.log_sd[columns]
    if posterior.covariance == "lowrank":
        cut["learned_factor"] = posterior.learned_factor[columns]
    if posterior.covariance in ("dense", "per-output"):
        # S = L L' without some rows and columns is R R', where R are the remaining rows of L. With R' = Q U it is U' U,
        # which is triangular.
        rows = posterior.cholesky()[..., columns, :].double()
        upper = torch.linalg.qr(rows.mT, mode="r").R
        lower = (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).mT.float()
        cut["lower"], cut["log_sd"] = lower.tril(-1), lower.diagonal(dim1=-2, dim2=-1).log()
    for name, value in cut.items():
        posterior.register_parameter(name, nn.Parameter(value.clone()))
