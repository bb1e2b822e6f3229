"""Raw features to the input vector: what the graph looks up is what the encoding would have."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from export import features, reference
from export.builder import Array, GraphBuilder
from ghostless.contract import metadata
from learning.backbone import FARTHEST
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.schema import Feature, Schema
from tests.support import torch_models as models

FAR = [2**31, 2**32, 2**53, 2**62]
UNKNOWN = np.array(
    [sign * far + step for far in FAR for sign in (1, -1) for step in (-2, -1, 0, 1, 2)]
    + [2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, -1, -2, 10**6],
    np.int64,
)
# A table whose row i is [i]: what comes out of a gather is the row that was taken.
ROWS = np.arange(5, dtype=np.float32)[:, None] * 10.0


def run(g: GraphBuilder, value: str, fed: Array, width: int = 1) -> Array:
    g.output("out", value, width)
    session = ort.InferenceSession(g.model({}).SerializeToString(), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": fed})
    return np.asarray(answer)


def gathered(vocabulary: list[int], ids: Array) -> tuple[Array, set[str]]:
    g = GraphBuilder()
    feature = Feature("x", "id", type="int64", embedding=1)
    value = features.gather_id(g, g.input("x", "int64"), feature, np.array(vocabulary, np.int64), ROWS)
    operators = {node.op_type for node in g.nodes}
    return run(g, value, ids)[:, 0], operators


@pytest.mark.parametrize("vocabulary", [[0, 1, 2, 3], [1, 5, 9, 4000], [-7, 2**31, 2**53 + 1, 2**62 + 3]])
def test_known_ids_find_their_row_and_unknown_ones_the_first(vocabulary: list[int]) -> None:
    known, _ = gathered(vocabulary, np.array(vocabulary, np.int64))
    assert known.tolist() == [10.0, 20.0, 30.0, 40.0]
    strangers = UNKNOWN[~np.isin(UNKNOWN, vocabulary)]
    unknown, _ = gathered(vocabulary, strangers)
    assert strangers[unknown != 0.0].tolist() == []


def test_small_ids_are_rows_and_hashes_go_through_a_map() -> None:
    assert "LabelEncoder" not in gathered([0, 1, 2, 3], UNKNOWN)[1]
    assert "LabelEncoder" in gathered([0, 1, 2, 2**40], UNKNOWN)[1]
    assert "LabelEncoder" in gathered([-1, 0, 1, 2], UNKNOWN)[1]


def test_ids_between_known_ones_are_unknown_too() -> None:
    between, _ = gathered([1, 5, 9, 4000], np.array([0, 2, 4, 6, 8, 10, 3999, 4001, 4002, 5000]))
    assert between.tolist() == [0.0] * 10


def test_int64_clip_of_the_runtime_is_still_not_to_be_trusted() -> None:
    """Why ids are clipped as float64; when this fails, ONNX Runtime was mended and the detour can go."""
    g = GraphBuilder()
    ends = [g.constant(name, at, np.int64) for name, at in (("low", -1), ("high", 100))]
    clipped = g.node("Clip", [g.input("x", "int64"), *ends])
    answer = run(g, g.node("Cast", [g.reshape(clipped, [-1, 1])], to=1), UNKNOWN)[:, 0]
    assert not np.array_equal(answer, np.clip(UNKNOWN, -1, 100).astype(np.float32))


def test_strings_find_their_row() -> None:
    g = GraphBuilder()
    feature = Feature("x", "id", type="string", embedding=1)
    value = features.gather_id(g, g.input("x", "string"), feature, np.array(["a", "b", "ü", "zz"]), ROWS)
    fed = np.array(["zz", "z", "zzz", "", "ü", "A", "a", "b ", "b"], object)
    assert run(g, value, fed)[:, 0].tolist() == [40.0, 0.0, 0.0, 0.0, 30.0, 0.0, 10.0, 0.0, 20.0]


@pytest.mark.parametrize("head", ["qr", "cr"])
def test_unknown_ids_are_told_by_feature_whatever_their_lookup(head: str, tmp_path: Path) -> None:
    """Text ids, hashes and ids that are rows, and numbers, which have no column."""
    checkpoint = models.shaken(models.EVERY_KIND, models.config(head=head))
    columns = {name: values[:7] for name, values in models.some_rows(checkpoint, 7).items()}
    known = checkpoint.encoding.vocabularies
    columns["user"] = np.array([*known["user"][:5], "stranger", ""], object)
    columns["hash"] = np.array([*known["hash"][:4], -1, 0, 2**62 + 1], np.int64)
    columns["category"] = np.array([-1, 60, 2**40, *known["category"][:3], -(2**63)], np.int64)
    served = models.serve(models.alone(checkpoint), tmp_path)
    unknown = served(columns)[metadata.UNKNOWN_IDS]
    assert unknown[:, 0].tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert unknown[:, 1].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert unknown[:, 2].tolist() == [1, 1, 1, 0, 0, 0, 1]
    assert served.loaded.metadata.unknown_ids == ("user", "hash", "category")


def encoding_of(feature: Feature, values: Array) -> Encoding:
    schema = Schema((feature,), models.TARGET)
    return Encoding.fit(Table(schema, {feature.name: values}, np.zeros(len(values), np.float32)))


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e5])
def test_buckets_change_exactly_at_their_edges(spread: float) -> None:
    values = (np.random.default_rng(0).exponential(spread, 4000)).astype(np.float32)
    encoding = encoding_of(Feature("x", "bucket", type="float32", embedding=1, buckets=30), values)
    edges = encoding.edges["x"]
    around = np.concatenate([np.nextafter(edges, np.float32(-np.inf)), edges, np.nextafter(edges, np.float32(np.inf))])
    corners = np.array([0.0, -1.0, np.finfo(np.float32).max, -np.finfo(np.float32).max, 1e-45], np.float32)
    fed = np.concatenate([around, corners, values[:500]])
    # Each bucket's embedding is its own index, so the graph must answer with what the encoding says.
    table = np.arange(encoding.cardinality("x"), dtype=np.float32)[:, None]
    g = GraphBuilder()
    value = features.embed_bucket(g, g.input("x", "float32"), "x", edges, table)
    expected = encoding.encode(Table(encoding.schema, {"x": fed}, np.zeros(len(fed), np.float32)))["x"]
    assert run(g, value, fed)[:, 0].tolist() == expected.tolist()


def test_a_bucket_feature_that_never_varied_has_one_row(tmp_path: Path) -> None:
    schema = Schema((Feature("kind", "id", embedding=3), models.EVERY_KIND.features[3]), models.TARGET)
    table = models.random_table(schema)
    constant = Table(schema, {**table.columns, "duration": np.ones(table.rows, np.float32)}, table.target)
    checkpoint = models.shaken(schema, table=constant)
    assert len(checkpoint.encoding.edges["duration"]) == 0
    served = models.serve(models.alone(checkpoint), tmp_path)
    columns = models.some_rows(checkpoint)
    expected = reference.answer(served.networks, columns, served.layout)
    assert np.allclose(served(columns)[metadata.MEAN], expected[metadata.MEAN], rtol=1e-5)


def standardised(mean: float, deviation: float, fed: Array) -> Array:
    g = GraphBuilder()
    value = features.standardise(g, g.input("x", "float32"), "x", mean, deviation, FARTHEST)
    return run(g, value, fed.astype(np.float32))[:, 0]


def test_numbers_are_standardised_and_clipped() -> None:
    got = standardised(20.0, 4.0, np.array([20.0, 24.0, 12.0, 1e6, -1e6, 3.4e38, -3.4e38, 0.0]))
    assert got.tolist() == [0.0, 1.0, -2.0, FARTHEST, -FARTHEST, FARTHEST, -FARTHEST, -5.0]


@pytest.mark.parametrize(("mean", "deviation"), [(1.7e9 + 63.0, 5000.0), (-3e8 - 11.3, 100.0), (1e-3, 1e-7)])
def test_a_mean_far_from_zero_is_subtracted_exactly(mean: float, deviation: float) -> None:
    """A time stamp's mean has more digits than float32: rounding it would shift every row."""
    fed = np.linspace(mean - 3 * deviation, mean + 3 * deviation, 50).astype(np.float32)
    expected = (fed.astype(np.float64) - mean) / deviation
    assert np.allclose(standardised(mean, deviation, fed), expected, rtol=1e-6, atol=1e-6)
