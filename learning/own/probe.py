"""Detects that a PyTorch backbone's code changed between training and export, by its answers to fixed rows."""

import torch
from torch import Tensor

from learning.errors import CheckpointError
from learning.model import Network
from learning.own import torch_ranker
from learning.own.model import TorchRankerModel

PROBE_ROWS = 16
# Largest allowed difference relative to the largest answer: other processors and versions of torch round differently.
TOLERANCE = 1e-3


@torch.no_grad()
def answer(network: Network) -> Tensor | None:
    """phi [PROBE_ROWS, width] of rows that depend on the features only; None for other networks."""
    if not isinstance(network, TorchRankerModel):
        return None
    generator = torch.Generator().manual_seed(0)
    batch = {
        item.name: torch.randint(0, item.rows, (PROBE_ROWS,), generator=generator)
        if item.kind == "id"
        else torch.randn(PROBE_ROWS, generator=generator)
        for item in network.inputs
    }
    network.eval()
    return torch_ranker.run(network.ranker, network.config.own, batch).clone()


def check(network: Network, expected: Tensor | None) -> None:
    """Raise an error if a loaded backbone's answer differs from the one when it was saved."""
    found = answer(network)
    if found is None or expected is None:
        return
    distance = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
    if not distance <= TOLERANCE:
        raise CheckpointError(
            f"the code of {network.config.own} has changed since training: with the stored weights, its output differs "
            f"by {distance:.2g} of its size; restore the code of that time, or train again"
        )
