"""Conformalised quantile regression (Romano et al. 2019) for a whole set of levels.

Each pair of levels kappa and 1 - kappa is an interval. Held-out rows determine by how much it must widen (or may
shrink) to cover 1 - 2 kappa. The shifted quantiles are then turned into a distribution in the same way as those of the
vanilla head.
"""

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from ghostless.heads.predictive import Predictive
from ghostless.heads.quantile import QuantileHead
from learning.model import Model, Predict

LabelledRows = tuple[Mapping[str, Tensor], Tensor]
# Quantiles [n, K] of a head and phi [n, D] -> distributions.
ReadQuantiles = Callable[[QuantileHead, Tensor, Tensor], Predictive]


def conformal_shifts(m: Tensor, y: Tensor, levels: Tensor) -> Tensor:
    """What to add to each of the K quantiles: m [n, K] and y [n] of rows not used in training, levels [K] -> [K].

    Levels must be symmetric about 1/2. The score of a row is its distance outside the interval, negative inside.
    """
    rows, count = m.shape
    if not torch.allclose(levels + levels.flip(0), torch.ones(count), atol=1e-6):
        raise ValueError("conformalised quantiles need levels that are symmetric about 1/2")
    shifts = torch.zeros(count)
    for lower in range(count // 2):
        upper = count - 1 - lower
        scores = torch.maximum(m[:, lower] - y, y - m[:, upper]).sort().values
        coverage = 1.0 - 2.0 * levels[lower].item()
        place = min(math.ceil((rows + 1) * coverage), rows)
        shifts[lower], shifts[upper] = -scores[place - 1], scores[place - 1]
    return shifts


@torch.no_grad()
def conformalise(model: Model, held_out: Iterable[LabelledRows], read: ReadQuantiles = QuantileHead.read) -> Predict:
    """Returns a function that predicts with the model's quantiles, shifted by the result of the held-out rows."""
    head = model.eval().head
    if not isinstance(head, QuantileHead):
        raise ValueError(f"only quantiles can be conformalised so, not a {type(head).__name__}")
    outputs = [(head.posterior.outputs(model.phi(batch)), y) for batch, y in held_out]
    shifts = conformal_shifts(torch.cat([m for m, _ in outputs]), torch.cat([y for _, y in outputs]), head.levels)

    def predict(batch: Mapping[str, Tensor]) -> Predictive:
        phi = model.phi(batch)
        return read(head, head.posterior.outputs(phi) + shifts, phi)

    return predict
