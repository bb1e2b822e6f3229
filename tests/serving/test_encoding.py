"""The hand-written wire format against the generated code."""

import numpy as np
import pytest
from ghostless.v1 import prediction_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from serving.encoding import MessageWriter, varint, varints

_finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    st.text(),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**32 - 1),
    npst.arrays(np.float32, npst.array_shapes(max_dims=2, min_side=0), elements=_finite32),
    npst.arrays(np.int64, st.integers(0, 50), elements=st.integers(0, 2**32 - 1)),
    st.lists(_finite32, max_size=40),
)
def test_generated_code_reads_what_is_written(
    text: str, version: int, rows: int, floats: np.ndarray, indexes: np.ndarray, levels: list[float]
) -> None:
    writer = MessageWriter()
    writer.text(1, text)
    writer.number(2, version)
    writer.number(4, rows)
    writer.floats(5, floats)
    inner = MessageWriter()
    inner.constants(1, tuple(levels))
    inner.floats(2, floats)
    writer.message(6, inner)
    writer.indexes(12, indexes)

    expected = pb.PredictResponse(model=text, version=version, rows=rows, ranking=indexes.tolist())
    expected.mean.extend(floats.ravel().tolist())
    expected.quantiles.SetInParent()
    expected.quantiles.levels.extend(levels)
    expected.quantiles.values.extend(floats.ravel().tolist())
    parsed = pb.PredictResponse.FromString(writer.finish())
    assert parsed == expected
    assert parsed.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def test_a_sliced_matrix_goes_row_major() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)[:, 1:3]
    writer = MessageWriter()
    writer.floats(5, matrix)
    assert list(pb.PredictResponse.FromString(writer.finish()).mean) == [1, 2, 5, 6, 9, 10]


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16383, 16384, 2**32 - 1])
def test_varints_agree_with_varint(number: int) -> None:
    assert varints(np.array([number, 5])) == varint(number) + varint(5)
