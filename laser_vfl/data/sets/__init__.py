"""The data sets of the paper: read from official or compact files, cut into blocks."""

from laser_vfl.data.sets.catalogue import SET_NAMES, SOURCES, data_root, load_set, source_of
from laser_vfl.data.sets.dataset import Blocks, DataSet, Samples

__all__ = [
    "SET_NAMES",
    "SOURCES",
    "Blocks",
    "DataSet",
    "Samples",
    "data_root",
    "load_set",
    "source_of",
]
