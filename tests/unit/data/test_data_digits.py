"""The digits that come with scikit-learn, read without importing it."""

import numpy as np

from laser_vfl.data.sets import digits


def test_the_file_says_what_scikit_learn_says(monkeypatch):
    read = digits.read_digits()
    monkeypatch.setattr(digits, "_file", lambda: None)
    for mine, theirs in zip(read, digits.read_digits(), strict=True):
        assert mine.dtype == theirs.dtype
        assert np.array_equal(mine, theirs)


def test_a_package_without_the_file_is_no_error(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda _: None)
    assert digits._file() is None
