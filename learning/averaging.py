"""The moving average of a network's weights over the steps; it is validated and stored."""

from collections.abc import Mapping
from typing import Any

from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from learning.model import Network


class WeightAverage:
    """Exponential moving average with decay min(share, (1 + t) / (10 + t)) after t steps.

    Because the decay starts low, the average of a short run does not depend on its initial weights. Buffers are copied
    from the current network.
    """

    def __init__(self, network: Network, share: float) -> None:
        """share: fraction of the average that a step keeps; with 0 the average equals the current weights."""
        self._averaged = AveragedModel(network, multi_avg_fn=self._update)
        self._share = share

    def _update(self, averaged: Any, current: Any, steps: Any) -> None:
        taken = float(steps)
        get_ema_multi_avg_fn(min(self._share, (1.0 + taken) / (10.0 + taken)))(averaged, current, steps)

    def update(self, network: Network) -> None:
        """Call this after each step of the optimizer."""
        self._averaged.update_parameters(network)

    @property
    def network(self) -> Network:
        """The averaged weights as a network, in evaluation mode."""
        network = self._averaged.module.eval()
        assert isinstance(network, Network)
        return network

    def state_dict(self) -> dict[str, Any]:
        return self._averaged.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._averaged.load_state_dict(state)
