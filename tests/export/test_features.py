"""Raw features to the input vector: what the graph looks up is what the encoding would have."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from export import features, reference
from export.builder import Array, GraphBuilder, Value
from ghostless.contract import metadata
from learning.config import TrainConfig
from learning.data.encoding import FARTHEST, SOFT_LIMIT, Encoding, position_key, z_key
from learning.data.table import Table
from learning.schema import Feature, Schema
from learning.training import Trainer
from tests.support import torch_models as models

FAR = [2**31, 2**32, 2**53, 2**62]
UNKNOWN = np.array(
    [sign * far + step for far in FAR for sign in (1, -1) for step in (-2, -1, 0, 1, 2)]
    + [2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, -1, -2, 10**6],
    np.int64,
)
# A table whose row i is [i]: what comes out of a gather is the row that was taken.
ROWS = np.arange(5, dtype=np.float32)[:, None] * 10.0


def run(g: GraphBuilder, value: Value, fed: Array, width: int = 1) -> Array:
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


def around(points: Array) -> Array:
    """Each point and its neighbours, and numbers far from all of them."""
    ends = np.float32(-np.inf), np.float32(np.inf)
    corners = np.array([0.0, -1.0, np.finfo(np.float32).max, -np.finfo(np.float32).max, 1e-45], np.float32)
    return np.concatenate([np.nextafter(points, ends[0]), points, np.nextafter(points, ends[1]), corners])


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e5])
def test_buckets_change_exactly_at_their_edges_and_ramps_are_those_of_the_encoding(spread: float) -> None:
    values = np.random.default_rng(0).exponential(spread, 4000).astype(np.float32)
    encoding = encoding_of(Feature("x", "bucket", type="float32", embedding=1, buckets=30), values)
    fed = np.concatenate([around(encoding.edges["x"]), around(encoding.knots["x"]), values[:500]])
    # Each bucket's embedding is its own index, and each ramp has a column.
    table = np.arange(encoding.cardinality("x"), dtype=np.float32)[:, None]
    pieces = encoding.pieces("x")
    g = GraphBuilder()
    number = features.NumberTable.of(encoding.edges["x"], encoding.knots["x"], table, np.eye(pieces, dtype=np.float32))
    got = run(g, features.read_numbers(g, [g.input("x", "float32")], [number]), fed, 1 + pieces)
    expected = encoding.encode(Table(encoding.schema, {"x": fed}, np.zeros(len(fed), np.float32)))
    assert got[:, 0].tolist() == expected["x"].tolist()
    ramps = np.clip(expected[position_key("x")][:, None] - np.arange(pieces), 0.0, 1.0)
    assert np.abs(got[:, 1:] - ramps).max() < 1e-5


def test_numbers_of_one_width_are_read_together() -> None:
    """Each from its own table: the second one's rows follow the first one's."""
    random = np.random.default_rng(0)
    schema = Schema(tuple(Feature(name, "number", type="float32", embedding=1) for name in "abc"), models.TARGET)
    columns = {name: random.normal(place, 1.0, 900).astype(np.float32) for place, name in enumerate("abc")}
    encoding = Encoding.fit(Table(schema, columns, np.zeros(900, np.float32)))
    tables = [
        features.NumberTable.of(
            encoding.edges[name],
            encoding.knots[name],
            1000.0 * place + np.arange(encoding.cardinality(name), dtype=np.float32)[:, None],
            np.ones((encoding.pieces(name), 1), np.float32),
        )
        for place, name in enumerate("abc")
    ]
    g = GraphBuilder()
    g.output("out", features.read_numbers(g, [g.input(name, "float32") for name in "abc"], tables), 6)
    session = ort.InferenceSession(g.model({}).SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, columns)
    encoded = encoding.encode(Table(schema, columns, np.zeros(900, np.float32)))
    for place, name in enumerate("abc"):
        assert got[:, 2 * place].tolist() == (1000.0 * place + encoded[name]).tolist()
        assert np.abs(got[:, 2 * place + 1] - encoded[position_key(name)]).max() < 1e-4


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


def bent(centre: float, spread: float, fed: Array) -> Array:
    g = GraphBuilder()
    return run(g, features.bend(g, [g.input("x", "float32")], [centre], [spread]), fed.astype(np.float32))[:, 0]


def test_numbers_are_bent_far_from_their_centre() -> None:
    fed = np.array([20.0, 24.0, 12.0, 1e6, -1e6, 3.4e38, -3.4e38, 0.0])
    expected = SOFT_LIMIT * np.arcsinh(np.clip((fed - 20.0) / 4.0, -FARTHEST, FARTHEST) / SOFT_LIMIT)
    assert np.allclose(bent(20.0, 4.0, fed), expected, rtol=1e-6)


@pytest.mark.parametrize(("centre", "spread"), [(1.7e9 + 63.0, 5000.0), (-3e8 - 11.3, 100.0), (1e-3, 1e-7)])
def test_a_centre_far_from_zero_is_subtracted_exactly(centre: float, spread: float) -> None:
    """A time stamp's centre has more digits than float32: rounding it would shift every row."""
    fed = np.linspace(centre - 3 * spread, centre + 3 * spread, 50).astype(np.float32)
    expected = SOFT_LIMIT * np.arcsinh((fed.astype(np.float64) - centre) / spread / SOFT_LIMIT)
    assert np.allclose(bent(centre, spread, fed), expected, rtol=1e-6, atol=1e-6)


def test_bent_numbers_are_those_of_the_encoding() -> None:
    values = np.random.default_rng(1).lognormal(3.0, 2.0, 3000).astype(np.float32)
    encoding = encoding_of(Feature("x", "number", type="float32"), values)
    fed = np.concatenate([around(encoding.knots["x"]), values])
    expected = encoding.encode(Table(encoding.schema, {"x": fed}, np.zeros(len(fed), np.float32)))[z_key("x")]
    assert np.allclose(bent(encoding.centres["x"], encoding.spreads["x"], fed), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own", ["", "tests.support.rankers:TwoTower"])
def test_a_category_is_looked_up_like_an_id_but_has_no_effect(tmp_path: Path, own: str) -> None:
    schema = Schema(
        (
            Feature("user", "id", "context", type="string", embedding=4),
            Feature("country", "category", type="string", embedding=4),
            Feature("device", "category", type="int64", embedding=4),
        ),
        models.TARGET,
    )
    table = models.random_table(schema, 600)
    table.columns["device"][:] = np.arange(600) % 5
    trainer = Trainer(table, "views", models.config(head="cr", own=own), TrainConfig(steps=10))
    checkpoint = trainer.run()
    assert checkpoint.encoding.cardinality("device") == 6
    assert checkpoint.model.effects is not None
    assert checkpoint.model.effects.names == ("user",)
    served = models.serve(models.alone(checkpoint), tmp_path)
    columns = models.some_rows(checkpoint, 50)
    got, expected = served(columns), reference.answer(served.networks, columns, served.layout)
    assert got[metadata.UNKNOWN_IDS].shape[1] == 1
    assert got[metadata.MEAN] == pytest.approx(expected[metadata.MEAN], rel=1e-4)
    # Another category changes the answer.
    columns["device"] = (columns["device"] + 1) % 5
    assert not np.allclose(served(columns)[metadata.MEAN], got[metadata.MEAN])
