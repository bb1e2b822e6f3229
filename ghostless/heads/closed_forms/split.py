"""The epistemic part of a calibrated variance: from the effects of ids, and from the last layer.

gamma 1, the effects' part grows with a row's noise:  rho V = e N / Nbar with N = V - rho V, so rho = e / (e + Nbar)
gamma 0, it does not:                                 rho V = min(e, 0.9 V)
R = (1 - rho) V,   epistemic = rho V + l R / (l + R),   aleatoric = V - epistemic > 0

Nbar, the level, is the mean of N over held-out rows. Scaling with V itself would be wrong: for an unknown id, V
includes the uncertainty about the id, which would count twice.
"""

from torch import Tensor

from ghostless.heads.closed_forms.saturation import saturated

# Maximum share of V that effects may have, so that some noise remains for every row (gamma 0) or on average (gamma 1).
MOST_SHARE = 0.9
_LEVEL_STEPS = 50


def effects_part(total: Tensor, raw: Tensor, level: Tensor | float, gamma: int, part: Tensor | None = None) -> Tensor:
    """rho V [n] for a variance V [n] and the variance e [n] of the effects. part [n]: a part of e; if it is given, only
    the share of this part is returned. level: Nbar."""
    part = raw if part is None else part
    if gamma:
        return total * part / (raw + level)
    return part.minimum(MOST_SHARE * total)


def noise_level(total: Tensor, raw: Tensor) -> float:
    """Nbar of held-out rows with V [n] and e [n]: the mean of V - rho V, at least a tenth of the mean of V."""
    whole = float(total.mean())
    level = whole
    for _ in range(_LEVEL_STEPS):
        level = max(float((total * level / (raw + level)).mean()), (1.0 - MOST_SHARE) * whole)
    return level


def epistemic_variance(total: Tensor, shared: Tensor, last_layer: Tensor) -> Tensor:
    """rho V + l R / (l + R) [n] for V, rho V and l, [n] each."""
    return shared + saturated(last_layer, total - shared)
