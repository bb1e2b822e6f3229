"""The answer's bytes read by hand are what the generated code reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghostless.client.errors import MalformedAnswerError
from ghostless.client.prediction import parse_prediction
from ghostless.contract.wire import packed_floats
from ghostless.v1 import prediction_pb2 as pb

VECTORS = ("aleatoric", "epistemic", "total", "logit_variance")
finite = st.floats(width=32, allow_nan=False)


@st.composite
def responses(draw: st.DrawFn) -> pb.PredictResponse:
    rows = draw(st.integers(1, 5))
    levels = draw(st.integers(1, 4))

    def column(size: int) -> list[float]:
        return draw(st.lists(finite, min_size=size, max_size=size))

    response = pb.PredictResponse(
        model=draw(st.text(max_size=5)), version=draw(st.integers(0, 2**63 - 1)), rows=rows, mean=column(rows)
    )
    if draw(st.booleans()):
        response.quantiles.levels.extend(column(levels))
        response.quantiles.values.extend(column(rows * levels))
    if draw(st.booleans()):
        for name in VECTORS:
            getattr(response.uncertainty, name).extend(column(rows))
    response.ranking.extend(draw(st.lists(st.integers(0, 2**32 - 1), max_size=6)))
    return response


@given(responses())
def test_parsing_agrees_with_the_generated_code(response: pb.PredictResponse) -> None:
    prediction = parse_prediction(response.SerializeToString())
    assert (prediction.model, prediction.version, prediction.rows) == (
        response.model,
        response.version,
        response.rows,
    )
    np.testing.assert_array_equal(prediction.mean, list(response.mean))
    if response.HasField("quantiles"):
        assert prediction.quantiles is not None
        np.testing.assert_array_equal(prediction.levels, list(response.quantiles.levels))
        np.testing.assert_array_equal(prediction.quantiles.ravel(), list(response.quantiles.values))
    else:
        assert prediction.quantiles is None
    for name in VECTORS:
        if response.HasField("uncertainty"):
            np.testing.assert_array_equal(getattr(prediction, name), list(getattr(response.uncertainty, name)))
        else:
            assert getattr(prediction, name) is None
    if response.ranking:
        np.testing.assert_array_equal(prediction.ranking, list(response.ranking))
    else:
        assert prediction.ranking is None


def test_legal_but_unusual_layouts_are_read_too() -> None:
    whole = pb.PredictResponse(rows=4, mean=[1, 2, 3, 4], quantiles=pb.Quantiles(levels=[0.5], values=[5, 6, 7, 8]))
    in_pieces = (
        pb.PredictResponse(rows=4, mean=[1, 2], quantiles=pb.Quantiles(levels=[0.5], values=[5, 6])).SerializeToString()
        # The second half of the mean unpacked: tag 5 with wire type fixed32, value by value.
        + b"".join(bytes([5 << 3 | 5]) + np.float32(value).tobytes() for value in (3, 4))
        + pb.PredictResponse(quantiles=pb.Quantiles(values=[7, 8])).SerializeToString()
    )
    expected, read = parse_prediction(whole.SerializeToString()), parse_prediction(in_pieces)
    np.testing.assert_array_equal(read.mean, expected.mean)
    np.testing.assert_array_equal(read.quantiles, expected.quantiles)


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff",
        pb.PredictResponse(rows=3, mean=[1, 2, 3]).SerializeToString()[:-2],
        pb.PredictResponse(rows=3, mean=[1, 2]).SerializeToString(),
        pb.PredictResponse(rows=3, quantiles=pb.Quantiles(levels=[0.5], values=[1, 2])).SerializeToString(),
    ],
    ids=["not protobuf", "cut off", "short vector", "short matrix"],
)
def test_damaged_answers_are_told(answer: bytes) -> None:
    with pytest.raises(MalformedAnswerError, match="not a consistent"):
        parse_prediction(answer)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 5000])
def test_packed_floats_are_protobufs_own_bytes(size: int) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    assert list(pb.FloatList.FromString(packed_floats(1, values)).values) == values.tolist()


def test_arrays_are_views_of_the_answer() -> None:
    prediction = parse_prediction(pb.PredictResponse(rows=2, mean=[1, 2]).SerializeToString())
    assert prediction.mean is not None
    assert not prediction.mean.flags.owndata
    assert not prediction.mean.flags.writeable
