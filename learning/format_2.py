"""Upgrades checkpoints of format 2, whose phi ended in novelty columns, to the current format.

A novelty column contained 1 / sqrt(1 + n_id) of each id, with a given variance. It is a constant of the id, so it
becomes one more column of the id's embedding table, with weights of zero into the cross layer and the network, and with
its own mean and variance in the last layer. All outputs stay the same.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from learning.backbone import RAMP_WIDTH
from learning.errors import CheckpointError
from learning.format_1 import NO_SPREAD, spread_columns

_GONE = ("novelty", "novelty_sd")


def upgraded(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a format-2 file in the current format."""
    features = content["schema"]["features"]
    model = {name: value for name, value in content["model"].items() if name not in _GONE}
    state = dict(content["state"])
    ids = [feature["name"] for feature in features if f"towers.novelty_{feature['name']}" in state]
    if ids:
        state = _state(state, features, model, content["hidden"][-1])
        features = [
            {**feature, "embedding": feature["embedding"] + 1} if feature["name"] in ids else feature
            for feature in features
        ]
    state.pop("head.posterior.novelty_sd", None)
    return {**content, "model": model, "schema": {**content["schema"], "features": features}, "state": state}


def _state(
    old: dict[str, Tensor], features: list[dict[str, Any]], model: Mapping[str, Any], hidden: int
) -> dict[str, Tensor]:
    if model["backbone"] in ("sn", "spectral-residual"):
        raise CheckpointError(
            f"backbone '{model['backbone']}' with novelty columns is no longer supported; train again"
        )
    state = dict(old)
    for feature in features:
        name = feature["name"]
        if feature["kind"] == "id":
            column = state.pop(f"towers.novelty_{name}").unsqueeze(-1)
            state[f"towers.tables.{name}.weight"] = torch.cat([old[f"towers.tables.{name}.weight"], column], -1)
    places, novel, width = _places(features)
    parts = 1
    if "backbone.cross.bias" in old:
        parts = 2
        state["backbone.cross.bias"] = spread_columns(old["backbone.cross.bias"], places, width)
        factors = sorted(name for name in old if name.startswith("backbone.cross.factors."))
        state[factors[0]] = spread_columns(old[factors[0]].T, places, width).T.contiguous()
        state[factors[-1]] = spread_columns(state[factors[-1]], places, width)
    inputs = [part * width + place for part in range(parts) for place in places]
    for name in ("backbone.layers.0.weight", "backbone.layers.0.v"):
        if name in old:
            state[name] = spread_columns(old[name], inputs, parts * width)
    learned = [*range(hidden), *(hidden + place for place in inputs)]
    given = [hidden + place for place in novel]
    return state | _posterior(old, learned, given, hidden + parts * width)


def _posterior(old: Mapping[str, Tensor], learned: list[int], given: list[int], width: int) -> dict[str, Tensor]:
    """The last layer over phi with `width` columns: learned columns, and columns with a given variance."""
    prefix = "head.posterior."
    state = {f"{prefix}mean": spread_columns(old[f"{prefix}mean"], [*learned, *given], width)}
    if f"{prefix}log_sd" in old:
        spread = spread_columns(old[f"{prefix}log_sd"], learned, width, NO_SPREAD)
        spread[..., given] = old[f"{prefix}novelty_sd"].log()
        state[f"{prefix}log_sd"] = spread
    if f"{prefix}learned_factor" in old:
        state[f"{prefix}learned_factor"] = spread_columns(
            old[f"{prefix}learned_factor"].T, learned, width
        ).T.contiguous()
    if f"{prefix}lower" in old:
        rows = spread_columns(old[f"{prefix}lower"], learned, width)
        state[f"{prefix}lower"] = spread_columns(rows.transpose(-1, -2), learned, width).transpose(-1, -2).contiguous()
    return state


def _places(features: list[dict[str, Any]]) -> tuple[list[int], list[int], int]:
    """Positions of the columns of a format-2 input vector and of the novelty columns in the current one, and its
    width."""
    places: list[int] = []
    novel: list[int] = []
    at = 0
    for feature in features:
        width = feature["embedding"] + (0 if feature["kind"] == "id" else 1 + RAMP_WIDTH)
        places += range(at, at + width)
        at += width
        if feature["kind"] == "id":
            novel.append(at)
            at += 1
    return places, novel, at
