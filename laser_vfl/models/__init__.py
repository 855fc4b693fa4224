"""Representation models and fusion heads: built-in by name, or the user's own."""

from laser_vfl.models.build import (
    OptionError,
    build_fusion,
    build_representation,
    check_fusion_name,
    check_hidden,
    check_representation_name,
)
from laser_vfl.models.check import check_fusion, check_representation, check_rows_apart

__all__ = [
    "OptionError",
    "build_fusion",
    "build_representation",
    "check_fusion",
    "check_fusion_name",
    "check_hidden",
    "check_representation",
    "check_representation_name",
    "check_rows_apart",
]
