"""The data sets as they are read from the compact files, where those are at hand."""

import hashlib

import numpy as np
import pytest

from laser_vfl.data.sets import SOURCES, DataSet, data_root, load_set

ROOT = data_root()
SOURCE = {source.name: source for source in SOURCES}


def load(name: str) -> DataSet:
    path = ROOT and ROOT / SOURCE[name].compact
    if path is None or not path.is_file():
        pytest.skip(f"{SOURCE[name].compact} is not here: name its directory in LASER_VFL_DATA")
    return load_set(name, ROOT)


def shares(data: DataSet) -> list[float]:
    return [round(float(part.labels.mean()), 4) for part in (data.train, data.test)]


def test_hapt() -> None:
    data = load("hapt")
    assert data.train.features.shape == (7767, 561)
    assert data.test.features.shape == (3162, 561)
    assert np.bincount(data.train.labels).tolist()[0] == 1226  # walking, as published
    assert len(np.bincount(data.train.labels)) == data.num_classes == 12
    assert [block.shape for block in data.blocks(4).train] == [(7767, 140)] * 4
    assert "re-derived from the HAPT raw signals" in data.notes[0]


def test_credit() -> None:
    data = load("credit")
    assert (data.train.features.shape, data.test.features.shape) == ((24000, 23), (6000, 23))
    assert shares(data) == [0.2212, 0.2212]
    blocks = data.blocks(4)
    assert [block.shape for block in blocks.test] == [(6000, 5)] * 4
    assert np.array_equal(np.concatenate(blocks.train, axis=1), data.train.features[:, :20])


def test_icu() -> None:
    data = load("icu")
    assert (data.train.features.shape, len(data.test)) == ((9600, 48, 37), 2400)
    assert shares(data) == [0.1423, 0.1421]
    blocks = data.blocks(4)
    assert [block.shape for block in blocks.train] == [(9600, 48, 20), *[(9600, 48, 19)] * 3]
    assert all(np.isfinite(block).all() and np.abs(block).max() < 40 for block in blocks.train)
    acidity = blocks.train[2][:, :, 26 - 18]
    assert acidity[blocks.train[2][:, :, 9 + 26 - 18] > 0].std() == pytest.approx(1, abs=0.05)


def test_mimic_iv_demo_is_read_inside_its_archive() -> None:
    data = load("mimic4")
    assert len(data.train) + len(data.test) == 21
    assert data.train.labels.sum() + data.test.labels.sum() == 10
    assert data.train.features.shape[1:] == (48, 40)
    assert np.isfinite(data.train.features).mean() > 0.02
    assert [group.shape[1] for group in data.train.static] == [100, 8]
    assert [block.shape[1:] for block in data.blocks(4).train] == [(48, 2 * 10 + 25 + 2)] * 4
    assert any("labs alone" in note for note in data.notes)
    assert any("far too few" in note for note in data.notes)


@pytest.mark.parametrize(("name", "num_classes"), [("cifar10", 10), ("cifar100", 100)])
def test_cifar(name: str, num_classes: int) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    data = load(name)
    assert data.train.features.shape == (50_000, 3, 32, 32)
    assert data.test.features.dtype == np.uint8
    assert np.bincount(data.train.labels).tolist() == [50_000 // num_classes] * num_classes
    assert np.bincount(data.test.labels).tolist() == [10_000 // num_classes] * num_classes
    rows = data.train.features.astype(np.int16)
    steps = np.abs(np.diff(rows[:100], axis=3)).mean(), np.abs(rows[:100] - rows[100:200]).mean()
    assert steps[0] < 20 < steps[1]  # neighbours are alike: pixels stand where they belong


def test_digits() -> None:
    data = load_set("digits")
    assert (len(data.train), len(data.test)) == (1347, 450)
    assert np.bincount(data.train.labels).min() > 125
    assert [block.shape for block in data.blocks(4).train] == [(1347, 16)] * 4
    order = hashlib.sha256(data.test.labels.tobytes()).hexdigest()
    assert order == hashlib.sha256(load_set("digits").test.labels.tobytes()).hexdigest()
