"""The graph's first part: raw features by name to the model's input vector, with nothing left to the caller.

An id becomes a row of its table, unknown ids the out-of-vocabulary row; the id's novelty column lies in the same row,
so one gather brings both. Duration-like numbers find their bucket, plain numbers are standardised.
"""

import numpy as np

from export.builder import FLOAT, FLOAT64, INT64, Array, GraphBuilder
from learning.data.encoding import Encoding
from learning.model import Model
from learning.schema import Feature

# A table addressed by the id itself costs a clip; it may hold this many times more rows than there are ids, each
# a copy of the out-of-vocabulary row, before a hash map (LabelEncoder) is the better bargain.
DIRECT_SPREAD = 4
DIRECT_ROWS = 4096


def id_table(model: Model, name: str, scale: Array) -> Array:
    """Embedding and novelty column of every row, out-of-vocabulary first, times `scale`: [V + 1, width (+ 1)]."""
    table: Array = model.towers.table(name).detach().numpy()
    if name in model.towers.ids:
        table = np.concatenate([table, model.towers.novelty(name).numpy()[:, None]], 1)
    # A copy only where it must be: it may be gigabytes.
    return table * scale if (scale != 1.0).any() else table


def gather_id(g: GraphBuilder, value: str, feature: Feature, vocabulary: Array, table: Array) -> str:
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


def unknown_ids(g: GraphBuilder, encoding: Encoding) -> str | None:
    """[n, id features]: 1 where the first network's training never saw the id; None without id features. To be called
    after `gather_id`, whose row indexes it reads again: a gather of one float for each id feature."""
    columns = []
    for feature in encoding.schema.features:
        if feature.kind == "id":
            vocabulary = encoding.vocabularies[feature.name]
            flags = np.zeros((len(vocabulary) + 1, 1), np.float32)
            flags[0] = 1.0
            rows = g.constant(f"{feature.name}/flags", _laid_out(feature, vocabulary, flags))
            columns.append(g.node("Gather", [rows, _index_name(feature.name)], f"{feature.name}/unknown", axis=0))
    if len(columns) > 1:
        return g.node("Concat", columns, "unknown", axis=-1)
    return columns[0] if columns else None


def _index_name(feature: str) -> str:
    """Of the value that holds each row's place in the feature's tables; later networks of an ensemble get a suffix."""
    return f"{feature}/row"


def _laid_out(feature: Feature, vocabulary: Array, table: Array) -> Array:
    """The table as its index addresses it. By the id itself: row i is id i, ids that training never saw are copies of
    the out-of-vocabulary row, and so is the last row, for everything outside."""
    if not _is_dense(feature, vocabulary):
        return table
    rows: Array = np.repeat(table[:1], int(vocabulary[-1]) + 2, axis=0)
    rows[vocabulary] = table[1:]
    return rows


def _is_dense(feature: Feature, vocabulary: Array) -> bool:
    """Whether ids are places in the table themselves."""
    if feature.type != "int64":
        return False
    return bool(vocabulary[0] >= 0 and vocabulary[-1] < DIRECT_SPREAD * len(vocabulary) + DIRECT_ROWS)


def embed_bucket(g: GraphBuilder, value: str, name: str, edges: Array, table: Array) -> str:
    """[n] numbers -> [n, width] rows of the bucket table: row k for the k edges at or below the number.

    Row k is row 0 plus the k steps taken, so comparing and one product do; nothing is counted, cast to integers and
    gathered.
    """
    column = g.reshape(value, [-1, 1], f"{name}/column")
    passed = g.node("GreaterOrEqual", [column, g.constant(f"{name}/edges", edges[None, :])], f"{name}/passed")
    steps = np.diff(table.astype(np.float64), axis=0).astype(np.float32)
    return g.linear(g.node("Cast", [passed], f"{name}/steps", to=FLOAT), steps, table[0], f"{name}/embedding")


def standardise(
    g: GraphBuilder, value: str, name: str, mean: float, deviation: float, limit: float, scale: float = 1.0
) -> str:
    """[n] numbers -> [n, 1], as many standard deviations from the training mean, clipped to +- limit, times `scale`."""
    centred = g.node("Sub", [g.reshape(value, [-1, 1], f"{name}/column"), g.constant(f"{name}/mean", mean)])
    rest = mean - float(np.float32(mean))
    if abs(rest) > 1e-7 * deviation:
        # A time stamp's mean has more digits than float32; near it the first difference is exact, so this corrects it.
        centred = g.node("Sub", [centred, g.constant(f"{name}/rest", rest)])
    scaled = g.node("Div", [centred, g.constant(f"{name}/deviation", deviation / scale)], f"{name}/scaled")
    ends = (g.constant(end, at * scale) for end, at in (("low", -limit), ("high", limit)))
    return g.node("Clip", [scaled, *ends], f"{name}/number")


def input_columns(model: Model, encoding: Encoding) -> list[tuple[str, int]]:
    """What each column of the graph's input vector is: ("x", index into x) or ("novelty", index into its columns)."""
    columns: list[tuple[str, int]] = []
    at = 0
    for feature in encoding.schema.features:
        novelty = feature.name in model.towers.ids
        width = input_width(model, feature) - novelty
        columns += [("x", at + offset) for offset in range(width)]
        at += width
        if novelty:
            columns.append(("novelty", model.towers.ids.index(feature.name)))
    return columns


def input_width(model: Model, feature: Feature) -> int:
    """How many columns of the input vector are the feature's, novelty included."""
    return (1 if feature.kind == "number" else feature.embedding) + (feature.name in model.towers.ids)
