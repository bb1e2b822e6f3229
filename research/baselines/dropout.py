"""Monte Carlo dropout (Gal & Ghahramani 2016): a vanilla network asked many times with its dropout left on."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from learning.linear_pool import LinearPool
from learning.model import Network, Predict

PooledPredict = Callable[[Mapping[str, Tensor]], LinearPool]

# As many passes as the paper's BALD-MCD takes.
PASSES = 25


def mc_dropout(network: Network, once: Predict, passes: int = PASSES, seed: int = 0) -> PooledPredict:
    """A function that predicts by the pool of `passes` passes of `once`, which predicts by the network.

    Only the backbone's units drop, never the ids.
    """

    def predict(batch: Mapping[str, Tensor]) -> LinearPool:
        network.eval()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network.backbone.dropout.train()
            try:
                members = tuple(once(batch) for _ in range(passes))
            finally:
                network.backbone.dropout.eval()
        return LinearPool.equal(members)

    return predict
