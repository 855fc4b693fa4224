"""CIFAR-10 and CIFAR-100: small colour images, from the official binary files or from JPEG sheets.

The official Python version is a pickle, which can run code when it is read; it is never touched.
"""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.sets.dataset import DataSet, Samples, checked_labels
from laser_vfl.data.sets.file_tree import Tree
from laser_vfl.data.sets.image_cuts import image_blocks
from laser_vfl.data.sets.source import Source

SIDE = 32
_IMAGE_BYTES = 3 * SIDE * SIDE
_SHEET_SIDE = 50  # images along each side of a JPEG sheet
_GET_IT = "The CIFAR-10 and CIFAR-100 datasets, by Alex Krizhevsky: the binary version"

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Cifar:
    """One of the two; they differ in their files and in how many labels an image has."""

    source: Source
    train_files: tuple[str, ...]
    test_file: str
    label_bytes: int  # the last of them is the label that counts

    def from_official(self, tree: Tree) -> DataSet:
        """Read the binary version: for each image its labels, then its planes of pixels."""
        train = self._records(tree, self.train_files)
        test = self._records(tree, (self.test_file,))
        notes = (f"{self.source.title}: the official images and split.", *_NOTES)
        return self.source.data_set(train, test, image_blocks, notes)

    def from_compact(self, path: Path) -> DataSet:
        """Read the JPEG sheets."""
        with zipfile.ZipFile(path) as archive:
            train, test = (self._sheets(archive, table, str(path)) for table in ("train", "test"))
        notes = (
            f"{self.source.title}: JPEG re-encodings (quality 95) of the official images, in the "
            "official split.",
            *_NOTES,
        )
        return self.source.data_set(train, test, image_blocks, notes)

    def _records(self, tree: Tree, names: Sequence[str]) -> Samples:
        content = bytearray()
        for name in names:
            with tree.open(name) as file:
                content += file.read()
        width = self.label_bytes + _IMAGE_BYTES
        if not content or len(content) % width:
            raise ValueError(f"{names[0]} is not made of records of {width} bytes")
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
        images = records[:, self.label_bytes :].reshape(-1, 3, SIDE, SIDE)
        return self._samples(images, records[:, self.label_bytes - 1], str(tree.path))

    def _sheets(self, archive: zipfile.ZipFile, table: str, where: str) -> Samples:
        labels = np.load(io.BytesIO(archive.read(f"y_{table}.npy")), allow_pickle=False)
        start = f"x_{table}_"
        names = sorted(name for name in archive.namelist() if name.startswith(start))
        images = np.concatenate([_images(archive.read(name)) for name in names])
        return self._samples(images[: len(labels)], labels, where)

    def _samples(self, images: Bytes, labels: npt.NDArray[Any], where: str) -> Samples:
        counted = checked_labels(labels, 0, self.source.num_classes, where)
        return Samples(np.ascontiguousarray(images), counted)


_NOTES = (
    "The paper's random crop and flip before the cut move pixels between blocks: experiments do it "
    "in their simulation, an organisation moves and mirrors its own block.",
)
CIFAR10 = Cifar(
    Source(
        name="cifar10",
        title="CIFAR-10",
        task="multiclass",
        metric="accuracy",
        num_classes=10,
        get_it=_GET_IT,
        markers=("data_batch_1.bin",),
        archives=("cifar-10-binary.tar.gz",),
        archive_md5={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        compact="cifar10_jpeg_q95_444.zip",
        compact_sha256="ad2b8532793c1900c0431da404798b136b378f2dc135adc9436fe04b96c25400",
    ),
    tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test_batch.bin",
    label_bytes=1,
)
CIFAR100 = Cifar(
    Source(
        name="cifar100",
        title="CIFAR-100",
        task="multiclass",
        metric="accuracy",
        num_classes=100,
        get_it=_GET_IT,
        markers=("train.bin",),
        archives=("cifar-100-binary.tar.gz",),
        archive_md5={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        compact="cifar100_jpeg_q95_444.zip",
        compact_sha256="28ee082c7e655a4ca0f63a188b18f68ebe0d4790c1b880512b799316dfe1d39f",
    ),
    ("train.bin",),
    "test.bin",
    label_bytes=2,  # the coarse one, then the fine one
)


def _images(sheet: bytes) -> Bytes:
    """Return the images of a JPEG sheet, (n, 3, 32, 32)."""
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError(
            "JPEG sheets need Pillow, which is not installed",
            hint="install it with: pip install 'laser-vfl[experiments]'",
        ) from None
    with Image.open(io.BytesIO(sheet), formats=("JPEG",)) as image:
        pixels = np.asarray(image.convert("RGB"))
    grid = pixels.reshape(_SHEET_SIDE, SIDE, _SHEET_SIDE, SIDE, 3)
    return grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE)
