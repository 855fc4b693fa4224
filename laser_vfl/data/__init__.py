"""A client's feature block: read from CSV, Parquet or NPZ, checked, and encoded as float32."""

from laser_vfl.data.columns.column_spec import ColumnSpec
from laser_vfl.data.encoding import EARLIER_VERSION, VERSION, Encoding
from laser_vfl.data.ids import blind_ids, id_blinder, normalise_id, normalise_ids, read_secret
from laser_vfl.data.labels import LabelEncoding
from laser_vfl.data.points import (
    POINT_BYTES,
    check_points,
    clamped,
    hash_to_curve,
    multiply,
    new_scalar,
    u_coordinates,
)
from laser_vfl.data.private_labels import PrivateLabels, check_classes
from laser_vfl.data.tables import (
    KnownLabels,
    Table,
    TableSpec,
    check_excluded,
    check_header,
    check_tables_apart,
    read_table,
)

__all__ = [
    "EARLIER_VERSION",
    "POINT_BYTES",
    "VERSION",
    "ColumnSpec",
    "Encoding",
    "KnownLabels",
    "LabelEncoding",
    "PrivateLabels",
    "Table",
    "TableSpec",
    "blind_ids",
    "check_classes",
    "check_excluded",
    "check_header",
    "check_points",
    "check_tables_apart",
    "clamped",
    "hash_to_curve",
    "id_blinder",
    "multiply",
    "new_scalar",
    "normalise_id",
    "normalise_ids",
    "read_secret",
    "read_table",
    "u_coordinates",
]
