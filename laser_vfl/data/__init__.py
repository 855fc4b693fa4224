"""A client's feature block: read from CSV, Parquet or NPZ, checked, and encoded as float32."""

from laser_vfl.data.encoding import Encoding
from laser_vfl.data.ids import blind_ids, normalise_ids, read_secret
from laser_vfl.data.labels import LabelEncoding
from laser_vfl.data.points import POINT_BYTES, check_points, hash_to_curve, multiply, new_scalar
from laser_vfl.data.tables import Table, TableSpec, check_header, check_tables_apart, read_table

__all__ = [
    "POINT_BYTES",
    "Encoding",
    "LabelEncoding",
    "Table",
    "TableSpec",
    "blind_ids",
    "check_header",
    "check_points",
    "check_tables_apart",
    "hash_to_curve",
    "multiply",
    "new_scalar",
    "normalise_ids",
    "read_secret",
    "read_table",
]
