"""How much of a variance is ignorance: ghostless.heads.closed_forms.split as graph nodes, on values [n]."""

from dataclasses import dataclass

import numpy as np

from export.builder import GraphBuilder, Value
from export.effect_nodes import EffectNodes
from ghostless.heads.closed_forms.split import MOST_SHARE

# Smaller than any meaningful variance, and far enough above the smallest float32 to be a divisor.
LEAST_VARIANCE = 1e-34
TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class VarianceSplit:
    """V and its parts, [n] each. total: V, but at least LEAST_VARIANCE."""

    total: Value
    epistemic: Value
    aleatoric: Value
    candidate: Value


def split(g: GraphBuilder, last_layer: Value, total: Value, effects: EffectNodes | None) -> VarianceSplit:
    """epistemic = rho V + l R / (l + R), aleatoric = R^2 / (l + R), from l and V. Computed as a difference, the latter
    would cancel or become negative when l is large."""
    floored = g.at_least(total, LEAST_VARIANCE, "split/total")
    shared, rest = _effects_part(g, floored, effects)
    share = g.node("Div", [rest, g.node("Add", [last_layer, rest], "split/both")], "split/share")
    own = g.node("Mul", [last_layer, share], "split/own")
    return _parts(g, floored, shared, own, g.node("Mul", [rest, share], "split/rest"), effects)


def share_split(
    g: GraphBuilder, part: Value, whole: Value, total: Value, effects: EffectNodes | None
) -> tuple[VarianceSplit, Value]:
    """R = V - rho V split in the ratio of `part` to the rest of `whole`, which includes it; and V part / whole, the
    same share of all of V."""
    floored = g.at_least(total, LEAST_VARIANCE, "split/total")
    shared, rest = _effects_part(g, floored, effects)
    held = g.at_least(whole, TINY, "split/whole")
    share = g.at_most(g.node("Div", [part, held]), 1.0, "split/share")
    known = g.node("Sub", [g.constant("one", 1.0), share], "split/known")
    own, left = (g.node("Mul", [rest, each], "split/own") for each in (share, known))
    return _parts(g, floored, shared, own, left, effects), g.node("Mul", [floored, share], "split/of_all")


def saturated(g: GraphBuilder, delta: Value, total: Value, name: str) -> Value:
    """closed_forms.saturation: delta total / (delta + total)."""
    both = g.at_least(g.node("Add", [delta, total]), TINY, f"{name}/both")
    return g.node("Mul", [delta, g.node("Div", [total, both])], f"{name}/saturated")


def _effects_part(g: GraphBuilder, total: Value, effects: EffectNodes | None) -> tuple[Value | None, Value]:
    """rho V and R = V - rho V, [parts, n] each; None and V [n] without effects."""
    if effects is None:
        return None, total
    if effects.whole is not None:
        shared = g.node("Mul", [effects.value, g.node("Div", [total, effects.whole], "split/noise")], "split/shared")
    else:
        most = g.node("Mul", [total, g.constant("split/most", MOST_SHARE)])
        shared = g.node("Min", [effects.value, most], "split/shared")
    return shared, g.node("Sub", [total, shared], "split/rest")


def _parts(
    g: GraphBuilder, total: Value, shared: Value | None, own: Value, left: Value, effects: EffectNodes | None
) -> VarianceSplit:
    """own, left: the two parts of R, with as many rows as `shared`."""
    if shared is None or effects is None:
        return VarianceSplit(total, own, left, own)
    both = g.node("Add", [shared, own], "split/both")
    epistemic = g.row(both, 0, "split/epistemic")
    candidate = epistemic if effects.parts == 1 else g.row(both, 1, "split/candidate")
    return VarianceSplit(total, epistemic, g.row(left, 0, "split/aleatoric"), candidate)
