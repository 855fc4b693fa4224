"""Digits: the small images that come with scikit-learn, for demos and quick experiments."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.sets.dataset import DataSet, Samples, stratified_test
from laser_vfl.data.sets.image_cuts import pixel_blocks
from laser_vfl.data.sets.source import Source

SOURCE = Source(
    name="digits",
    title="Optical Recognition of Handwritten Digits, the part that comes with scikit-learn",
    task="multiclass",
    metric="accuracy",
    num_classes=10,
    get_it="comes with scikit-learn: pip install 'laser-vfl[demo]'",
)
TEST_SHARE = 0.25


def read_digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return 1797 images of 8×8 pixels and their digits.

    They are read from scikit-learn's file; to import scikit-learn for that takes a second.
    """
    if (file := _file()) is not None:
        rows = np.loadtxt(file, delimiter=",")
        return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(np.int64)
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ConfigError(
            "digits come with scikit-learn, which is not installed",
            hint="install it with: pip install 'laser-vfl[demo]'",
        ) from None
    data = load_digits()
    return data.images, data.target


def load() -> DataSet:
    """Return the digits, a quarter of them for testing."""
    images, digits = read_digits()
    samples = Samples(images.astype(np.float32), digits.astype(np.int64))
    is_test = stratified_test(samples.labels, TEST_SHARE)
    notes = (
        "Digits: 1797 images of 8×8 pixels, 75 % for training and 25 % for testing, stratified, "
        "drawn with seed 0; it is not in the paper.",
    )
    return SOURCE.data_set(samples.part(~is_test), samples.part(is_test), pixel_blocks, notes)


def _file() -> Path | None:
    """Return where scikit-learn keeps the digits; None if it is not there, or not installed."""
    if (package := find_spec("sklearn")) is None:
        return None
    files = (
        Path(at, "datasets", "data", "digits.csv.gz")
        for at in package.submodule_search_locations or ()
    )
    return next((file for file in files if file.is_file()), None)
