"""ICU: two days in intensive care, hour by hour, and who died in hospital (PhysioNet 2012)."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.data.files import NpzFile
from laser_vfl.data.sets.dataset import DataSet, Floats, Samples, checked_labels, stratified_test
from laser_vfl.data.sets.file_tree import Tree
from laser_vfl.data.sets.sequence_cuts import sequence_blocks
from laser_vfl.data.sets.source import Source

SOURCE = Source(
    name="icu",
    title="PhysioNet/Computing in Cardiology Challenge 2012: mortality of ICU patients",
    task="binary",
    metric="f1",
    num_classes=2,
    get_it="PhysioNet, project challenge-2012 version 1.0.0",
    markers=("Outcomes-a.txt", "Outcomes-b.txt", "Outcomes-c.txt"),
    archives=("*challenge*2012*.zip",),
    compact="physionet2012_hourly.npz",
    compact_sha256="30241957c8dab995b99573b572366e03373d4b66f2d19584d06fd9a56fd10a68",
)
TEST_SHARE = 0.2
NUM_HOURS = 48
VARIABLES = (
    *("Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol", "Creatinine"),
    *("DiasABP", "FiO2", "GCS", "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP"),
    *("MechVent", "Mg", "Na", "NIDiasABP", "NIMAP", "NISysABP", "PaCO2", "PaO2", "pH"),
    *("Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT"),
    *("Urine", "WBC", "Weight"),
)
STATIC = ("Age", "Gender", "Height", "ICUType", "Weight")
_NOTES = (
    "ICU: PhysioNet Challenge 2012, an open stand-in for the paper's MIMIC-IV task; it is not "
    "MIMIC-IV, and figures on the two are not compared.",
    "ICU: 80 % for training and 20 % for testing, stratified, drawn with seed 0; nothing is "
    "over-sampled before the split.",
)


def from_official(tree: Tree) -> DataSet:
    """Read the records of set-a, and of set-b and set-c where they are, by the hour."""
    sequences, static, labels = [], [], []
    for part in "abc":
        outcomes = f"Outcomes-{part}.txt"
        if not tree.has(outcomes):
            continue
        with tree.open(outcomes) as file:
            frame = pl.read_csv(file.read(), infer_schema=False)
        died = dict(zip(frame["RecordID"], frame["In-hospital_death"], strict=True))
        for name in tree.inside(f"set-{part}"):
            number = re.fullmatch(r".*/(\d+)\.txt", name)
            if number is None:
                continue
            with io.TextIOWrapper(tree.open(name), encoding="ascii") as text:
                hours, never_changes = _record(text)
            sequences.append(hours)
            static.append(never_changes)
            labels.append(int(died[number[1]]))
    if not labels:
        raise ValueError("there are outcomes but no records in set-a, set-b or set-c")
    return _data_set(np.stack(sequences), np.stack(static), np.array(labels), str(tree.path))


def from_compact(path: Path) -> DataSet:
    """Read the compact file."""
    with NpzFile(path) as file:
        sequences, static = file.read_block("X"), file.read_block("static")
        return _data_set(sequences, static, file.read_column("y"), str(path))


def _data_set(sequences: Floats, static: Floats, labels: npt.NDArray[Any], where: str) -> DataSet:
    expected = (len(labels), NUM_HOURS, len(VARIABLES)), (len(labels), len(STATIC))
    if (sequences.shape, static.shape) != expected:
        raise ValueError(f"the shapes are {sequences.shape} and {static.shape}")
    samples = Samples(sequences, checked_labels(labels, 0, 2, where), (static,))
    is_test = stratified_test(samples.labels, TEST_SHARE)
    train, test = samples.part(~is_test), samples.part(is_test)
    return SOURCE.data_set(train, test, sequence_blocks, _NOTES)


def _record(lines: io.TextIOBase) -> tuple[Floats, Floats]:
    """Return the last value of each variable in each hour, and what was noted at admission.

    Descriptors are noted at 00:00, weight among them; -1 is how the files say "not known".
    """
    hours = np.full((NUM_HOURS, len(VARIABLES)), np.nan, dtype=np.float32)
    static = np.full(len(STATIC), np.nan, dtype=np.float32)
    for line in lines:
        time, _, rest = line.strip().partition(",")
        name, _, text = rest.partition(",")
        if not re.fullmatch(r"\d\d:\d\d", time):
            continue
        value = float(text)
        if time == "00:00" and name in STATIC:
            if value >= 0:
                static[STATIC.index(name)] = value
            if name not in VARIABLES:
                continue
        hour = int(time[:2])
        if name in VARIABLES and hour < NUM_HOURS and (value >= 0 or name == "Temp"):
            hours[hour, VARIABLES.index(name)] = value
    return hours, static
