"""The graph's first part: raw features by name to the model's input vector, so that the caller needs no preprocessing.

An id becomes a row of its table, and an unknown id becomes the out-of-vocabulary row. A number's bucket embedding and
ramps are linear between breakpoints, so one gather gives both; z is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from export.builder import FLOAT64, INT64, Array, GraphBuilder, Value
from learning.data.encoding import FARTHEST, SOFT_LIMIT, Encoding
from learning.model import Model
from learning.schema import Feature

# If the id itself is the index of the table, the look-up costs only a clip. The table may then have this many times
# more rows than there are ids, the others being copies of the out-of-vocabulary row; beyond that, a hash map
# (LabelEncoder) is better.
DIRECT_SPREAD = 4
DIRECT_ROWS = 4096


def gather_id(g: GraphBuilder, value: Value, feature: Feature, vocabulary: Array, table: Array) -> Value:
    """[n] raw ids -> [n, width] table rows. `table` has the out-of-vocabulary row first, then the vocabulary's."""
    name = feature.name
    if _is_dense(feature, vocabulary):
        # Clipped as float64: ONNX Runtime 1.31 does not clip int64 values near +-2^31 (and those beyond 2^53, which
        # float64 rounds, are far outside any table). Gather sends -1 to the last row.
        last = int(vocabulary[-1]) + 1
        ends = (g.constant(f"{name}/{end}", at, np.float64) for end, at in (("low", -1), ("high", last)))
        clipped = g.node("Clip", [g.node("Cast", [value], to=FLOAT64), *ends], f"{name}/clipped")
        index = g.node("Cast", [clipped], _index_name(name), to=INT64)
    else:
        keys = "keys_int64s" if feature.type == "int64" else "keys_strings"
        places = {keys: vocabulary.tolist(), "values_int64s": list(range(1, len(table))), "default_int64": 0}
        index = g.node("LabelEncoder", [value], _index_name(name), "ai.onnx.ml", **places)
    rows = _laid_out(feature, vocabulary, table)
    return g.node("Gather", [g.constant(f"{name}/table", rows, rows.dtype), index], f"{name}/embedding", axis=0)


def gather_rows(g: GraphBuilder, encoding: Encoding, name: str, table: Array) -> Value:
    """[n, width]: the row of each row's id in another table [V + 1, width], laid out like the embeddings.

    Call this after `gather_id`, whose row indexes it uses; they are those of the graph's first network.
    """
    (feature,) = (feature for feature in encoding.schema.features if feature.name == name)
    rows = g.constant(f"{name}/facts", _laid_out(feature, encoding.vocabularies[name], table))
    return g.node("Gather", [rows, g.named(_index_name(name))], f"{name}/known", axis=0)


def _index_name(feature: str) -> str:
    """Name of the value that holds each row's index in the feature's tables; later networks of an ensemble get a
    suffix."""
    return f"{feature}/row"


def _laid_out(feature: Feature, vocabulary: Array, table: Array) -> Array:
    """The table in the order of its index. If the id is the index, row i is id i; the rows of ids that did not occur in
    training are copies of the out-of-vocabulary row, and so is the last row, which serves all ids outside the table."""
    if not _is_dense(feature, vocabulary):
        return table
    rows: Array = np.repeat(table[:1], int(vocabulary[-1]) + 2, axis=0)
    rows[vocabulary] = table[1:]
    return rows


def _is_dense(feature: Feature, vocabulary: Array) -> bool:
    """Whether the ids themselves are the indexes of the table."""
    if feature.type != "int64":
        return False
    return bool(vocabulary[0] >= 0 and vocabulary[-1] < DIRECT_SPREAD * len(vocabulary) + DIRECT_ROWS)


@dataclass(frozen=True)
class NumberTable:
    """A number's embedding as a linear function in each interval between breakpoints, which are the bucket edges and
    the knots. Row i applies to a value v that has i breakpoints at or below it.

    breakpoints [I]. starts [I + 1]: the breakpoint from which ramps are measured. lengths [I + 1]: length of the ramp's
    piece. constant and slope [I + 1, width]: bucket embedding and mapped ramps are
    constant + (v - start) / length slope, for v clipped to [low, high].
    """

    breakpoints: Array
    starts: Array
    lengths: Array
    constant: Array
    slope: Array
    low: float
    high: float

    @classmethod
    def of(cls, edges: Array, knots: Array, table: Array, ramps: Array) -> "NumberTable":
        """edges [b - 1], knots [P + 1], bucket table [b, e], ramps' W [P, w]."""
        breakpoints = np.unique(np.concatenate([edges, knots])).astype(np.float32)
        # Any point inside a row's interval represents it; for the first row, one below all breakpoints.
        starts = np.concatenate([breakpoints[:1], breakpoints])
        bucket = np.concatenate([[0], np.searchsorted(edges, breakpoints, side="right")])
        heights = np.concatenate([np.zeros((1, ramps.shape[1])), np.cumsum(ramps.astype(np.float64), axis=0)])
        at = np.interp(starts.astype(np.float64), knots.astype(np.float64), np.arange(len(knots)))
        base = np.stack([np.interp(at, np.arange(len(knots)), column) for column in heights.T], 1)
        slope, lengths = np.zeros_like(base), np.ones(len(starts), np.float32)
        piece = np.searchsorted(knots, breakpoints, side="right") - 1
        for row, index in enumerate(piece, 1):
            if 0 <= index < len(ramps):
                slope[row], lengths[row] = ramps[index], knots[index + 1] - knots[index]
        embedded = table[bucket].astype(np.float64)
        constant = np.concatenate([embedded, base], 1)
        return cls(
            breakpoints,
            starts,
            lengths,
            constant.astype(np.float32),
            np.concatenate([np.zeros_like(embedded), slope], 1).astype(np.float32),
            float(knots[0]),
            float(knots[-1]),
        )


def read_numbers(g: GraphBuilder, values: Sequence[Value], tables: Sequence[NumberTable]) -> Value:
    """F numbers [n] each, whose tables have the same width -> [n, F width]: bucket embeddings and mapped ramps.

    All numbers are read at once, so the number of nodes does not depend on F. A tree per number finds the row, which
    costs less than comparing with each breakpoint; one gather and one multiply-add for the ramps follow.
    """
    column = number_columns(g, values)
    offsets = np.cumsum([0, *(len(table.starts) for table in tables)])
    found = _row_finder(g, column, [table.breakpoints for table in tables], offsets)
    index = g.node("Cast", [found], "numbers/row", to=INT64)
    stacked = np.concatenate(
        [np.column_stack([table.starts, table.lengths, table.constant, table.slope]) for table in tables]
    )
    width = tables[0].constant.shape[1]
    rows = g.node("Gather", [g.constant("numbers/table", stacked), index], "numbers/rows", axis=0)
    names = [f"numbers/{part}" for part in ("start", "length", "constant", "slope")]
    start, length, constant, slope = g.split(rows, [1, 1, width, width], names)
    low, high = (
        g.constant("numbers/end", np.array([[getattr(table, end) for table in tables]])) for end in ("low", "high")
    )
    inside = g.node("Min", [g.node("Max", [column, low]), high], "numbers/inside")
    passed = g.node("Sub", [g.reshape(inside, [-1, len(tables), 1]), start], "numbers/passed")
    along = g.node("Div", [passed, length], "numbers/along")
    read = g.node("Add", [constant, g.node("Mul", [along, slope])], "numbers/read")
    return g.reshape(read, [-1, len(tables) * width], "numbers/embedding")


def number_columns(g: GraphBuilder, values: Sequence[Value]) -> Value:
    """[n] each -> [n, F]."""
    columns = [g.reshape(value, [-1, 1], f"{value}/column") for value in values]
    return columns[0] if len(columns) == 1 else g.node("Concat", columns, "numbers/columns", axis=1)


def _row_finder(g: GraphBuilder, column: Value, breakpoints: Sequence[Array], offsets: Array) -> Value:
    """column [n, F] -> [n, F] float: offsets[f] + the number of feature f's breakpoints at or below its value."""
    nodes: dict[str, list[Any]] = {key: [] for key in ("tree", "id", "feature", "mode", "value", "true", "false")}
    leaves: dict[str, list[Any]] = {key: [] for key in ("tree", "node", "target", "weight")}

    def grow(tree: int, low: int, high: int, count: int) -> int:
        """The subtree that distinguishes low..high; `count` nodes precede it. Returns the count after it."""
        own = count
        leaf = low == high
        middle = (low + high) // 2
        for key, entry in (
            ("tree", tree),
            ("id", own),
            ("feature", tree),
            ("mode", "LEAF" if leaf else "BRANCH_LT"),
            ("value", 0.0 if leaf else float(breakpoints[tree][middle])),
            ("true", 0),
            ("false", 0),
        ):
            nodes[key].append(entry)
        if leaf:
            for key, entry in (("tree", tree), ("node", own), ("target", tree), ("weight", float(offsets[tree] + low))):
                leaves[key].append(entry)
            return count + 1
        place = len(nodes["true"]) - 1
        nodes["true"][place] = count + 1
        behind = grow(tree, low, middle, count + 1)
        nodes["false"][place] = behind
        return grow(tree, middle + 1, high, behind)

    for tree, points in enumerate(breakpoints):
        grow(tree, 0, len(points), 0)
    return g.node(
        "TreeEnsembleRegressor",
        [column],
        "numbers/found",
        "ai.onnx.ml",
        n_targets=len(breakpoints),
        aggregate_function="SUM",
        post_transform="NONE",
        nodes_treeids=nodes["tree"],
        nodes_nodeids=nodes["id"],
        nodes_featureids=nodes["feature"],
        nodes_modes=nodes["mode"],
        nodes_values=nodes["value"],
        nodes_truenodeids=nodes["true"],
        nodes_falsenodeids=nodes["false"],
        target_treeids=leaves["tree"],
        target_nodeids=leaves["node"],
        target_ids=leaves["target"],
        target_weights=leaves["weight"],
    )


def bend(
    g: GraphBuilder,
    values: Sequence[Value],
    centres: Sequence[float],
    spreads: Sequence[float],
    linear: Sequence[bool] | None = None,
) -> Value:
    """F numbers [n] each -> z [n, F] (learning.data.encoding); numbers marked `linear` are not bent."""
    column = number_columns(g, values)
    centred = g.node("Sub", [column, g.constant("z/centre", np.array([centres]))], "z/centred")
    rest = np.array([[centre - float(np.float32(centre)) for centre in centres]])
    if (np.abs(rest) > 1e-7 * np.asarray(spreads)).any():
        # A time stamp's centre has more digits than float32. Near the centre the first difference is exact; this
        # subtracts the part of the centre that float32 dropped.
        centred = g.node("Sub", [centred, g.constant("z/rest", rest)])
    unit = np.maximum([[SOFT_LIMIT * spread for spread in spreads]], np.finfo(np.float32).tiny)
    scaled = g.node("Div", [centred, g.constant("z/unit", unit)], "z/scaled")
    ends = (g.constant("z/end", end * FARTHEST / SOFT_LIMIT) for end in (-1.0, 1.0))
    near = g.node("Clip", [scaled, *ends], "z/near")
    straight = np.array([linear or [False] * len(values)])
    bent = near if straight.all() else g.node("Asinh", [near], "z/bent")
    if straight.any() and not straight.all():
        bent = g.node("Where", [g.constant("z/linear", straight, np.bool_), near, bent], "z/mixed")
    return g.node("Mul", [bent, g.constant("z/limit", np.full((1, len(values)), SOFT_LIMIT))], "z")


def number_groups(encoding: Encoding) -> list[list[Feature]]:
    """Numbers by the width of their embedding; those with equal width are looked up together."""
    groups: dict[int, list[Feature]] = {}
    for feature in encoding.schema.features:
        if not feature.is_coded:
            groups.setdefault(feature.embedding, []).append(feature)
    return list(groups.values())


def input_columns(model: Model, encoding: Encoding) -> list[int]:
    """For each column of the graph's input vector, its position in x: ids first, then for each group of numbers their
    embeddings and ramps, then every z."""
    starts: dict[str, int] = {}
    at = 0
    for feature in encoding.schema.features:
        starts[feature.name] = at
        at += model.towers.feature_width(feature)
    columns: list[int] = []
    for feature in encoding.schema.features:
        if feature.is_coded:
            columns += range(starts[feature.name], starts[feature.name] + feature.embedding)
    groups = number_groups(encoding)
    for group in groups:
        for feature in group:
            # All columns of the model's [embedding, z, ramps] except z.
            width = model.towers.feature_width(feature)
            offsets = [offset for offset in range(width) if offset != feature.embedding]
            columns += [starts[feature.name] + offset for offset in offsets]
    columns += [starts[feature.name] + feature.embedding for group in groups for feature in group]
    return columns
