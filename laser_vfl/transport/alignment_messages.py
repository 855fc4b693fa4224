"""Tables and purposes of an alignment, as messages name them."""

import numpy as np
import numpy.typing as npt

from laser_vfl.core import alignment_purpose
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.v1 import coordinator_pb2 as pb

TABLES = {"train": pb.TABLE_TRAIN, "test": pb.TABLE_TEST, "serve": pb.TABLE_SERVE}
TABLE_NAMES: dict[int, str] = {code: name for name, code in TABLES.items()}
_NUMBERS = np.array([TABLES[name] for name in alignment_purpose.TABLES], dtype=np.uint8)

PURPOSES = {
    AlignmentPurpose.RUN: pb.PURPOSE_RUN,
    AlignmentPurpose.DRY_RUN: pb.PURPOSE_DRY_RUN,
    AlignmentPurpose.UNALIGNED_IDS: pb.PURPOSE_NEWCOMERS,
}
PURPOSES_BY_CODE: dict[int, AlignmentPurpose] = {
    code: purpose for purpose, code in PURPOSES.items()
}


def table_numbers(places: npt.NDArray[np.uint8]) -> bytes:
    """Return the numbers of tables for a message, given their places among the names."""
    return _NUMBERS[places].tobytes()


def table_places(numbers: bytes | bytearray) -> npt.NDArray[np.uint8]:
    """Return the places of tables among the names; one past the last for a number of none."""
    places = np.full(256, len(_NUMBERS), dtype=np.uint8)
    places[_NUMBERS] = np.arange(len(_NUMBERS))
    return places[np.frombuffer(numbers, dtype=np.uint8)]
