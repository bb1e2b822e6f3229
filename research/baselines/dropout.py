"""Monte Carlo dropout (Gal & Ghahramani 2016): many passes of a vanilla network with active dropout."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from learning.linear_pool import LinearPool
from learning.model import Network, Predict

PooledPredict = Callable[[Mapping[str, Tensor]], LinearPool]

# The number of passes of the paper's BALD-MCD.
PASSES = 25


def mc_dropout(network: Network, once: Predict, passes: int = PASSES, seed: int = 0) -> PooledPredict:
    """Returns a function that predicts with the mixture of `passes` calls of `once`, which predicts with the network.

    Dropout applies only to the backbone's units, never to ids.
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
