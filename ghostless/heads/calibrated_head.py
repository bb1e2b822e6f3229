"""Base of both served heads: a temperature and a calibration map, stored with the weights and applied in `predict`."""

import torch
from torch import Tensor, nn

from ghostless.contract import scores
from ghostless.heads.calibration import IDENTITY, Calibration, fit_map
from ghostless.heads.predictive import KnotPredictive

# Rows that are processed at a time, so that the temporaries of a mixture stay small.
_ROWS = 2048


class CalibratedHead(nn.Module):
    """Stores a `Calibration` in buffers. Subclasses define the distribution before the map is applied."""

    temperature: Tensor
    map_heights: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.ones(()))
        self.register_buffer("map_heights", torch.tensor(IDENTITY))

    @property
    def knots(self) -> Tensor:
        """Knots [k] of the CDF."""
        raise NotImplementedError

    def uncalibrated(self, phi: Tensor) -> KnotPredictive:
        """The distribution at the head's temperature, without its map."""
        raise NotImplementedError

    @property
    def calibration(self) -> Calibration:
        heights = [float(value) for value in self.map_heights.float()]
        return Calibration(float(self.temperature), tuple(heights))

    @calibration.setter
    def calibration(self, fitted: Calibration) -> None:
        self.temperature.fill_(fitted.temperature)
        self.map_heights.copy_(torch.tensor(fitted.heights))

    @property
    def has_map(self) -> bool:
        """False if the map is the identity; it is then skipped."""
        return not self.calibration.is_identity

    @torch.no_grad()
    def fit_calibration(self, temperature: float, phi: Tensor, y: Tensor) -> Calibration:
        """Store the temperature, then fit the map at that temperature. phi [n, D], y [n]."""
        self.calibration = Calibration(temperature)
        knots = self.knots.double().numpy()
        below, above = scores.cells(knots, y.double().clamp(knots[0], knots[-1]).numpy())
        before, after = [], []
        for start in range(0, len(y), _ROWS):
            rows = slice(start, start + _ROWS)
            heights = self.uncalibrated(phi[rows]).heights.double().numpy()
            low, high = scores.cell_pit(heights, knots, below[rows], above[rows])
            before.extend(low.tolist())
            after.extend(high.tolist())
        self.calibration = Calibration(temperature, fit_map(before, after))
        return self.calibration
