"""Tables and purposes of an alignment, as messages name them."""

from laser_vfl.core.purpose import Purpose
from laser_vfl.v1 import coordinator_pb2 as pb

TABLES = {"train": pb.TABLE_TRAIN, "test": pb.TABLE_TEST, "serve": pb.TABLE_SERVE}
TABLE_NAMES: dict[int, str] = {code: name for name, code in TABLES.items()}

PURPOSES = {
    Purpose.RUN: pb.PURPOSE_RUN,
    Purpose.DRY_RUN: pb.PURPOSE_DRY_RUN,
    Purpose.NEWCOMERS: pb.PURPOSE_NEWCOMERS,
}
PURPOSES_BY_CODE: dict[int, Purpose] = {code: purpose for purpose, code in PURPOSES.items()}
