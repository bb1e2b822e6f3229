"""Rows for verifying and timing a graph: plausible ones, and extreme ones."""

import numpy as np

from export.builder import Array
from learning.data.encoding import Encoding
from learning.schema import Feature

_EXTREME_NUMBERS = np.array(
    [0.0, -0.0, 1e-45, -1e-38, 1.0, -1.0, 1e6, -1e6, 1e20, -1e20, 3.4028235e38, -3.4028235e38], np.float32
)
_EXTREME_IDS = np.array([0, -1, 1, 2**31, -(2**31), 2**63 - 1, -(2**63)], np.int64)


def plausible(encoding: Encoding, rows: int, seed: int, unknown: float = 0.05) -> dict[str, Array]:
    """Known ids as often as in training with a fraction of unknown ones, and numbers in about their training range."""
    random = np.random.default_rng(seed)
    columns: dict[str, Array] = {}
    for feature in encoding.schema.features:
        name = feature.name
        if feature.is_coded:
            counts = encoding.counts[name]
            known = random.choice(encoding.vocabularies[name], rows, p=counts / counts.sum())
            columns[name] = np.where(random.random(rows) < unknown, _unknown(known, rows, random), known)
        else:
            # Between training quantiles, some of them slightly beyond the ends, and one in ten exactly at a quantile.
            knots = encoding.knots[name].astype(np.float64)
            span = knots[-1] - knots[0] or 1.0
            ends = np.concatenate([[knots[0] - 0.05 * span], knots, [knots[-1] + 0.05 * span]])
            values = np.interp(random.uniform(0, len(ends) - 1, rows), np.arange(len(ends)), ends)
            columns[name] = np.where(random.random(rows) < 0.1, random.choice(knots, rows), values).astype(np.float32)
    return columns


def extreme(encoding: Encoding, seed: int = 0) -> dict[str, Array]:
    """Every extreme of every feature, combined with plausible values of the others."""
    rows = 64 * len(encoding.schema.features)
    columns = plausible(encoding, rows, seed)
    for place, feature in enumerate(encoding.schema.features):
        if feature.type == "string":
            corners: Array = np.array(["", "\u00e9\u4e2d", "x" * 300, "0"])
        else:
            corners = _EXTREME_IDS if feature.type == "int64" else _EXTREME_NUMBERS
        own = slice(64 * place, 64 * (place + 1))
        values = columns[feature.name]
        if values.dtype.kind == "U":
            values = values.astype(object)
        values[own] = np.resize(corners, 64)
        values[::7] = np.resize(corners, len(values[::7]))
        columns[feature.name] = values
    return columns


def examples(encoding: Encoding, feature: Feature) -> tuple[int | float | str, ...]:
    """Three usual values: the most frequent ids, or a number's median and quartiles."""
    name = feature.name
    if feature.is_coded:
        frequent: list[int | str] = encoding.vocabularies[name][np.argsort(-encoding.counts[name])[:3]].tolist()
        return tuple(frequent)
    knots = encoding.knots[name]
    return tuple(float(f"{knots[(len(knots) - 1) * quarter // 4]:.4g}") for quarter in (2, 1, 3))


def fed(columns: dict[str, Array]) -> dict[str, Array]:
    """The columns in ONNX Runtime's types: strings become objects."""
    return {name: values.astype(object) if values.dtype.kind == "U" else values for name, values in columns.items()}


def _unknown(known: Array, rows: int, random: np.random.Generator) -> Array:
    if known.dtype.kind == "U":
        return np.array([f"unknown-{number}" for number in random.integers(0, 1000, rows)])
    return random.integers(2**40, 2**41, rows)
