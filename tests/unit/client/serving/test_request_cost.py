"""What a request takes up: known before it is parsed, and what is too much is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.client.serving.limits.request_cost import (
    RowCost,
    bytes_of,
    check_fits,
    most_bytes,
)
from laser_vfl.core.errors import ContractError, DataError
from laser_vfl.transport.prediction_requests import encode_request
from laser_vfl.v1 import prediction_pb2 as pb

ROW = RowCost(num_inputs=4950, num_shared=96)
MAX_ROWS = 10_000

ids = st.lists(st.text(max_size=30).map(lambda text: text.encode("utf-8", "ignore").decode()))
values = st.sampled_from(["", "a", "\n", "\x12", "x" * 200])


@given(ids=ids, num_columns=st.integers(0, 4), value=values)
def test_what_is_known_before_parsing_is_never_too_little(ids, num_columns, value):
    columns = {f"x{j}": [value] * len(ids) for j in range(num_columns)}
    request = encode_request(ids, None, columns or None)
    content = request.SerializeToString()
    assert most_bytes(content, ROW, MAX_ROWS) >= bytes_of(request, ROW)
    assert bytes_of(request, ROW) >= bytes_of(request, ROW, resting=True)


def test_an_array_counts_by_its_bytes():
    request = encode_request(["a"] * 100, None, np.zeros((100, 3072)))
    content = request.SerializeToString()
    assert most_bytes(content, ROW, MAX_ROWS) >= bytes_of(request, ROW) > 2 * len(content)


def test_the_worst_request_fits_into_the_default():
    """10,000 ids, 150 categorical columns of 33 inputs each, as short as they can be."""
    column = pb.FeatureColumn(name="x", values=["a"] * 10_000)
    request = pb.PredictRequest(ids=["1"] * 10_000)
    request.columns.columns.extend([column] * 150)
    assert 400e6 < bytes_of(request, ROW) < 750e6


def test_a_request_that_is_too_large_is_told_how_to_be_split():
    with pytest.raises(DataError, match=r"takes 900 MB.*has 300 MB.*at most 3333 samples"):
        check_fits(900_000_000, 10_000, 300_000_000, 300_000_000)
    check_fits(300_000_000, 10_000, 300_000_000, 300_000_000)


def test_who_hides_what_a_message_holds_is_refused():
    with pytest.raises(ContractError, match="not written as protobuf"):
        check_fits(200, 10, held=100, total=300)


def test_tags_that_are_longer_than_they_need_be_are_noticed():
    """A parser takes 0x92 0x00 for 0x12."""
    hidden = b"\x92\x00\x00" * 10_000
    column = b"\x0a\x01x" + hidden
    size = len(column)
    inner = b"\x0a" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + column
    total = len(inner)
    content = (
        b"\x0a\x011" + b"\x1a" + bytes([total & 127 | 128, total >> 7 & 127 | 128, total >> 14])
    )
    content += inner
    request = pb.PredictRequest.FromString(content)
    assert len(request.columns.columns[0].values) == 10_000
    row = RowCost(1, 1)
    with pytest.raises(ContractError):
        check_fits(bytes_of(request, row), 1, most_bytes(content, row, MAX_ROWS), 10**9)
