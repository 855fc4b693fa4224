"""MIMIC-IV: two days in intensive care of patients with kidney disease, and who died in hospital.

A sample is a stay in intensive care of at least 48 hours, of an admission with chronic kidney
disease (ICD-9 585*, ICD-10 N18*). Its features come in three kinds, each cut into K parts: charted
values by the hour, conditions (other diagnoses of the admission) and demographics.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.sets.dataset import DataSet, Floats, Samples, checked_labels, stratified_test
from laser_vfl.data.sets.file_tree import Tree, open_tree
from laser_vfl.data.sets.mimic4_tables import Tables
from laser_vfl.data.sets.sequence_cuts import sequence_blocks
from laser_vfl.data.sets.source import Source

SOURCE = Source(
    name="mimic4",
    title="MIMIC-IV: in-hospital mortality in intensive care, chronic kidney disease",
    task="binary",
    metric="f1",
    num_classes=2,
    get_it="PhysioNet, project mimiciv, for credentialed users",
    markers=tuple(
        f"{folder}/admissions{end}" for folder in ("hosp", "core") for end in (".csv.gz", ".csv")
    ),
    archives=("mimic*iv*.zip",),
    compact="mimic_iv_demo_2.2.tar",
    compact_sha256="693f9becec81ca94156c387c0c1260b91266de7d5fb5f9b9d81f572780893aa3",
)
TEST_SHARE = 0.2
NUM_HOURS = 48
NUM_VARIABLES = 40  # the charted items that most stays have
NUM_CONDITIONS = 100  # the categories of diagnoses that most stays have
RACES = ("WHITE", "BLACK", "HISPANIC", "ASIAN")
INSURANCES = ("Medicare", "Medicaid")

Bools = npt.NDArray[np.bool_]


def from_compact(path: Path) -> DataSet:
    """Read the demo of the official layout, without unpacking it."""
    with open_tree(path, SOURCE.markers) as tree:
        return from_official(
            tree,
            "MIMIC-IV demo: 100 patients, enough to prove that the layout is read and far too few "
            "to report a score on.",
        )


def from_official(tree: Tree, *more_notes: str) -> DataSet:
    """Read hosp/ and icu/ of the official layout."""
    tables = Tables(tree)
    stays = tables.kidney_stays(NUM_HOURS)
    if not len(stays):
        raise DataError(
            f"there is no stay of {NUM_HOURS} hours with chronic kidney disease",
            hint="get the whole data set",
            where=str(tree.path),
        )
    is_test = _by_patient(stays)
    events = tables.events(stays, NUM_HOURS)
    chart = _chart(events, len(stays), ~is_test)
    conditions = _conditions(tables.conditions(stays), len(stays), ~is_test)
    labels = checked_labels(stays["died"].to_numpy(), 0, 2, str(tree.path))
    samples = Samples(chart, labels, (conditions, _demographics(stays)))
    notes = (
        *more_notes,
        "MIMIC-IV: stays of at least 48 hours, their first 48 hours; 80 % of the patients for "
        "training and 20 % for testing, stratified, drawn with seed 0. The paper's split "
        "over-samples before splitting and is not this one.",
        "MIMIC-IV: diagnoses are coded at discharge, as in the paper; they would not be known "
        "during the stay.",
        *(
            ()
            if tables.has_chart
            else ("MIMIC-IV: icu/chartevents is not there; the chart is made of labs alone.",)
        ),
    )
    return SOURCE.data_set(samples.part(~is_test), samples.part(is_test), sequence_blocks, notes)


def _by_patient(stays: pl.DataFrame) -> Bools:
    """Return which stays are for testing: all those of a patient, or none."""
    patients = stays.group_by("subject_id").agg(pl.col("died").max()).sort("subject_id")
    is_test = stratified_test(patients["died"].to_numpy().astype(np.int64), TEST_SHARE)
    chosen = patients.filter(is_test)["subject_id"]
    return stays["subject_id"].is_in(chosen.implode()).to_numpy()


def _chart(events: pl.DataFrame, num_stays: int, is_train: Bools) -> Floats:
    """Return the hourly means, (stays, hours, variables), NaN where nothing was charted."""
    items = _most_frequent(events, "itemid", is_train, NUM_VARIABLES)
    chart = np.full((num_stays, NUM_HOURS, len(items)), np.nan, dtype=np.float32)
    for place, item in enumerate(items):
        of_item = events.filter(pl.col("itemid") == item)
        chart[of_item["stay"].to_numpy(), of_item["hour"].to_numpy(), place] = of_item["value"]
    return chart


def _conditions(diagnoses: pl.DataFrame, num_stays: int, is_train: Bools) -> Floats:
    categories = _most_frequent(diagnoses, "category", is_train, NUM_CONDITIONS)
    conditions = np.zeros((num_stays, len(categories)), dtype=np.float32)
    for place, category in enumerate(categories):
        has_it = diagnoses.filter(pl.col("category") == category)["stay"]
        conditions[has_it.to_numpy(), place] = 1
    return conditions


def _most_frequent(frame: pl.DataFrame, column: str, is_train: Bools, most: int) -> list[Any]:
    """Return the values that most training stays have, in order."""
    counts = (
        frame.filter(pl.col("stay").is_in(np.flatnonzero(is_train).tolist()))
        .group_by(column)
        .agg(pl.col("stay").n_unique().alias("num_stays"))
        .sort(["num_stays", column], descending=[True, False])
    )
    return sorted(counts[column].head(most).to_list())


def _demographics(stays: pl.DataFrame) -> Floats:
    """Return age, sex, insurance and race; a race that is not listed has no column."""
    race, insurance = pl.col("race").fill_null(""), pl.col("insurance").fill_null("")
    columns = (
        pl.col("age"),
        pl.col("gender") == "F",
        *((insurance == name).alias(name) for name in INSURANCES),
        *(race.str.starts_with(name).alias(name) for name in RACES),
    )
    return stays.select(columns).cast(pl.Float32).to_numpy()
