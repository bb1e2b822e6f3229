"""Rows to verify and measure a graph with: plausible ones, and the ones that break things."""

import numpy as np

from export.builder import Array
from learning.data.encoding import Encoding
from learning.schema import Feature

_EXTREME_NUMBERS = np.array(
    [0.0, -0.0, 1e-45, -1e-38, 1.0, -1.0, 1e6, -1e6, 1e20, -1e20, 3.4028235e38, -3.4028235e38], np.float32
)
_EXTREME_IDS = np.array([0, -1, 1, 2**31, -(2**31), 2**63 - 1, -(2**63)], np.int64)


def plausible(encoding: Encoding, rows: int, seed: int, unknown: float = 0.05) -> dict[str, Array]:
    """Known ids as often as training saw them with a share of unknown ones, numbers about their training range."""
    random = np.random.default_rng(seed)
    columns: dict[str, Array] = {}
    for feature in encoding.schema.features:
        name = feature.name
        if feature.kind == "id":
            counts = encoding.counts[name]
            known = random.choice(encoding.vocabularies[name], rows, p=counts / counts.sum())
            columns[name] = np.where(random.random(rows) < unknown, _unknown(known, rows, random), known)
        elif feature.kind == "bucket":
            edges = encoding.edges[name].astype(np.float64)
            low, high = (edges[0], edges[-1]) if len(edges) else (0.0, 1.0)
            spread = high - low or 1.0
            columns[name] = random.uniform(low - 0.05 * spread, high + 0.05 * spread, rows).astype(np.float32)
        else:
            columns[name] = random.normal(encoding.means[name], encoding.deviations[name], rows).astype(np.float32)
    return columns


def extreme(encoding: Encoding, seed: int = 0) -> dict[str, Array]:
    """Every extreme of every feature, in all pairings with plausible values of the others."""
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
    """Three usual values: the most frequent ids, the quartiles of a bucketed number, a number's mean and about it."""
    name = feature.name
    if feature.kind == "id":
        frequent: list[int | str] = encoding.vocabularies[name][np.argsort(-encoding.counts[name])[:3]].tolist()
        return tuple(frequent)
    if feature.kind == "bucket":
        # A number that never varied in training has no edges, and then any value is as usual as another.
        edges = encoding.edges[name] if len(encoding.edges[name]) else np.zeros(1, np.float32)
        values = edges[len(edges) * np.arange(1, 4) // 4]
    else:
        values = encoding.means[name] + encoding.deviations[name] * np.array([0.0, -1.0, 1.0])
    return tuple(float(f"{value:.4g}") for value in values)


def fed(columns: dict[str, Array]) -> dict[str, Array]:
    """As ONNX Runtime takes them: strings as objects."""
    return {name: values.astype(object) if values.dtype.kind == "U" else values for name, values in columns.items()}


def _unknown(known: Array, rows: int, random: np.random.Generator) -> Array:
    if known.dtype.kind == "U":
        return np.array([f"unknown-{number}" for number in random.integers(0, 1000, rows)])
    return random.integers(2**40, 2**41, rows)
