"""Upgrades checkpoints of format 1, in which numbers were encoded in one way only, to the current format.

In format 1, an id and a bucket were represented by their embeddings, and a number by its standardised value. The
current input vector has more columns; new columns get weights of zero and no posterior variance, so that phi's
quadratic forms and all outputs stay the same. The standardised value of a number stays linear (`Encoding.linear`).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from learning.backbone import RAMP_WIDTH

# exp(2 * this) is 0 in single precision.
NO_SPREAD = -60.0


def upgraded(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a format-1 file in the current format, except for the head's buffers."""
    features = content["schema"]["features"]
    model = {**content["model"], "binning": "uniform"}
    return {
        **content,
        "model": model,
        "hidden": list(model["hidden"]),
        "encoding": _encoding(content["encoding"], features),
        "state": _state(content["state"], features, model),
    }


def _encoding(old: Mapping[str, Any], features: list[dict[str, Any]]) -> dict[str, Any]:
    encoding = dict(old)
    for feature in features:
        name = feature["name"]
        if feature["kind"] == "id":
            continue
        is_number = feature["kind"] == "number"
        encoding[f"centre/{name}"] = encoding.pop(f"mean/{name}") if is_number else 0.0
        encoding[f"spread/{name}"] = encoding.pop(f"deviation/{name}") if is_number else 1.0
        encoding[f"linear/{name}"] = is_number
        encoding.setdefault(f"edges/{name}", torch.zeros(0))
        encoding[f"knots/{name}"] = torch.zeros(1)
    return encoding


def _state(old: Mapping[str, Tensor], features: list[dict[str, Any]], model: Mapping[str, Any]) -> dict[str, Tensor]:
    state = dict(old)
    places, width = _places(features)
    for feature in features:
        name = feature["name"]
        if feature["kind"] != "id":
            state[f"towers.ramps.{name}"] = torch.zeros(0, RAMP_WIDTH)
        if feature["kind"] == "number":
            state[f"towers.tables.{name}.weight"] = torch.zeros(1, feature["embedding"])
    state["backbone.layers.0.weight"] = spread_columns(old["backbone.layers.0.weight"], places, width)
    state["backbone.layers.0.v"] = spread_columns(old["backbone.layers.0.v"], places, width)
    if model["backbone"] != "sn+raw":
        return state
    # phi = [f, x, novelty]; the covariance only covers f and x.
    f, novel = model["hidden"][-1], len(old["head.posterior.novelty_sd"])
    learned = [*range(f), *(f + place for place in places)]
    every = [*learned, *range(f + width, f + width + novel)]
    state["head.posterior.mean"] = spread_columns(old["head.posterior.mean"], every, f + width + novel)
    if "head.posterior.log_sd" in old:
        state["head.posterior.log_sd"] = spread_columns(old["head.posterior.log_sd"], learned, f + width, NO_SPREAD)
    if "head.posterior.learned_factor" in old:
        factor = old["head.posterior.learned_factor"]
        state["head.posterior.learned_factor"] = spread_columns(factor.T, learned, f + width).T.contiguous()
    if "head.posterior.lower" in old:
        rows = spread_columns(old["head.posterior.lower"], learned, f + width)
        state["head.posterior.lower"] = spread_columns(rows.transpose(-1, -2), learned, f + width).transpose(-1, -2)
    return state


def _places(features: list[dict[str, Any]]) -> tuple[list[int], int]:
    """Positions of the columns of a format-1 input vector in the current one, and its width."""
    places: list[int] = []
    at = 0
    for feature in features:
        embedding = feature["embedding"]
        places += [at + embedding] if feature["kind"] == "number" else range(at, at + embedding)
        at += embedding + (0 if feature["kind"] == "id" else 1 + RAMP_WIDTH)
    return places, at


def spread_columns(values: Tensor, places: list[int], width: int, rest: float = 0.0) -> Tensor:
    """values [.., columns] -> [.., width], column i at places[i], `rest` elsewhere."""
    wide = values.new_full((*values.shape[:-1], width), rest)
    wide[..., places] = values
    return wide
