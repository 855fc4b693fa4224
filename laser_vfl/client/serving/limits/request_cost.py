"""How many bytes a request for predictions takes up, before it is read and when it is known."""

from dataclasses import dataclass

from laser_vfl.core.errors import ContractError, DataError
from laser_vfl.v1 import prediction_pb2 as pb

INPUT_COPIES = 2
"""The encoded rows of a request, and of those that go with it in one batch."""

ITEM_BYTES = 4

ROW_BYTES = 1_000
"""An id, its digest, its names to peers, and its part of the answer."""

VALUE_BYTES = 160
"""A value of a column: in the message, as a text of Python, and in a column of polars."""

PARSED_BYTES = 50
"""A part of a message that has been parsed, without what is in it."""

MESSAGE_COPIES = 2

IDS_TAG, VALUES_TAG = b"\x0a", b"\x12"
"""What every id, column and name in a message begins with, and every value."""


@dataclass(frozen=True)
class RowCost:
    """What a sample costs a model."""

    num_inputs: int
    """Features of a row, as the model takes them."""
    num_shared: int
    """Numbers in the representations of all clients of a row."""

    @property
    def num_bytes(self) -> int:
        """While its row is encoded."""
        return ROW_BYTES + ITEM_BYTES * (INPUT_COPIES * self.num_inputs + self.num_shared)

    @property
    def num_resting_bytes(self) -> int:
        """When its representation has been computed, and peers are waited for."""
        return ROW_BYTES + ITEM_BYTES * self.num_shared


def most_bytes(content: bytes, row: RowCost, max_rows: int) -> int:
    """Return at least what a request may take up that has not been parsed yet."""
    num_parts, num_values = content.count(IDS_TAG), content.count(VALUES_TAG)
    num_rows = min(num_parts, max_rows)
    parsed = PARSED_BYTES * num_parts + VALUE_BYTES * num_values
    return MESSAGE_COPIES * len(content) + parsed + num_rows * row.num_bytes


def bytes_of(request: pb.PredictRequest, row: RowCost, *, resting: bool = False) -> int:
    """Return what a request takes up; `resting` when its rows have been computed."""
    num_values = sum(len(column.values) for column in request.columns.columns)
    per_row = row.num_resting_bytes if resting else row.num_bytes
    per_value = PARSED_BYTES if resting else VALUE_BYTES
    return MESSAGE_COPIES * request.ByteSize() + per_value * num_values + len(request.ids) * per_row


def check_fits(num_bytes: int, num_ids: int, held: int, total: int) -> None:
    """Refuse a request that is more than there is for all of them, or than was held for it."""
    if num_bytes > total:
        num_fits = max(1, num_ids * total // num_bytes)
        raise DataError(
            f"the request takes {num_bytes / 1e6:.0f} MB to answer, and this client has "
            f"{total / 1e6:.0f} MB for requests",
            hint=f"ask for at most {num_fits} samples at a time",
        )
    if num_bytes > held:  # tags can be written in more than one way, and nobody does
        raise ContractError("the message is not written as protobuf writes it")
