"""The hand-written wire format against the generated code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ghostless.contract.encoding import float_payload, header, index_payload, varint, varint_field, varints
from ghostless.v1 import prediction_pb2 as pb

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
    encoded_text = text.encode()
    inner = float_payload(1, np.array(levels, np.float32)) + float_payload(2, floats)
    message = b"".join(
        [
            header(1, len(encoded_text)),
            encoded_text,
            varint_field(2, version),
            varint_field(4, rows),
            float_payload(5, floats),
            header(6, len(inner)),
            inner,
            index_payload(12, indexes),
        ]
    )

    expected = pb.PredictResponse(model=text, version=version, rows=rows, ranking=indexes.tolist())
    expected.mean.extend(floats.ravel().tolist())
    expected.quantiles.SetInParent()
    expected.quantiles.levels.extend(levels)
    expected.quantiles.values.extend(floats.ravel().tolist())
    parsed = pb.PredictResponse.FromString(message)
    assert parsed == expected
    assert parsed.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def test_a_sliced_matrix_goes_row_major() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)[:, 1:3]
    assert list(pb.PredictResponse.FromString(float_payload(5, matrix)).mean) == [1, 2, 5, 6, 9, 10]


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16383, 16384, 2**32 - 1])
def test_varints_agree_with_varint(number: int) -> None:
    assert varints(np.array([number, 5])) == varint(number) + varint(5)
