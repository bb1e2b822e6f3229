"""How much of a calibrated variance is ignorance: what an id's rows share, and what the last layer does not know.

rho V = min(e / Vbar, 0.9) V  where ignorance grows with V (gamma 1),  min(e, 0.9 V)  where it does not (gamma 0)
R = (1 - rho) V,   epistemic = rho V + l R / (l + R),   aleatoric = V - epistemic > 0
"""

from torch import Tensor

from ghostless.heads.closed_forms.saturation import saturated

# The largest share of V that effects may claim: some noise is left for every row.
MOST_SHARE = 0.9


def effects_part(total: Tensor, raw: Tensor, level: Tensor | float, gamma: int) -> Tensor:
    """rho V [n] of a variance V [n] and the effects' variance e [n]. level: Vbar."""
    if gamma:
        return (raw / level).clamp(max=MOST_SHARE) * total
    return raw.minimum(MOST_SHARE * total)


def epistemic_variance(total: Tensor, shared: Tensor, last_layer: Tensor) -> Tensor:
    """rho V + l R / (l + R) [n] of V, rho V and l, [n] each."""
    return shared + saturated(last_layer, total - shared)
