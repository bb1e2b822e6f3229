"""How much of a calibrated variance is ignorance: what an id's rows share, and what the last layer does not know.

gamma 1, ignorance grows with a row's noise:  rho V = e N / Nbar with N = V - rho V, so rho = e / (e + Nbar)
gamma 0, it does not:                         rho V = min(e, 0.9 V)
R = (1 - rho) V,   epistemic = rho V + l R / (l + R),   aleatoric = V - epistemic > 0

Nbar, the level, is the mean of N over held-out rows. V itself would be the wrong measure: that of an unknown id holds
its ignorance, which would count twice.
"""

from torch import Tensor

from ghostless.heads.closed_forms.saturation import saturated

# The largest share of V that effects may claim: some noise is left for every row (gamma 0) or on average (gamma 1).
MOST_SHARE = 0.9
_LEVEL_STEPS = 50


def effects_part(total: Tensor, raw: Tensor, level: Tensor | float, gamma: int, part: Tensor | None = None) -> Tensor:
    """rho V [n] of a variance V [n] and the effects' variance e [n]; of a part of e, its part. level: Nbar."""
    part = raw if part is None else part
    if gamma:
        return total * part / (raw + level)
    return part.minimum(MOST_SHARE * total)


def noise_level(total: Tensor, raw: Tensor) -> float:
    """Nbar of held-out rows with V [n] and e [n]: the mean of V - rho V. It is at least a tenth of the mean of V."""
    whole = float(total.mean())
    level = whole
    for _ in range(_LEVEL_STEPS):
        level = max(float((total * level / (raw + level)).mean()), (1.0 - MOST_SHARE) * whole)
    return level


def epistemic_variance(total: Tensor, shared: Tensor, last_layer: Tensor) -> Tensor:
    """rho V + l R / (l + R) [n] of V, rho V and l, [n] each."""
    return shared + saturated(last_layer, total - shared)
