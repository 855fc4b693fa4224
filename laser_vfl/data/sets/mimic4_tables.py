"""The tables of MIMIC-IV, in the official layout: stays, what was charted, and diagnoses.

Events are read a piece at a time: of the whole data set they are tens of gigabytes.
"""

import gzip
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, cast

import polars as pl

from laser_vfl.core.errors import DataError
from laser_vfl.data.sets.file_tree import Tree

PIECE_BYTES = 1 << 26
SUMS = "SHA256SUMS.txt"
_TIME = "%Y-%m-%d %H:%M:%S"


class Tables:
    """Reads hosp/ and icu/, as CSV or gzipped CSV."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._sums = _published_sums(tree)
        # Until 2.0 they were in a folder of their own.
        self._people = "hosp" if self._name("hosp/admissions") else "core"
        self.has_chart = self._name("icu/chartevents") is not None

    def kidney_stays(self, num_hours: int) -> pl.DataFrame:
        """Return stays with chronic kidney disease, numbered in the order of their ids.

        The columns are stay, subject_id, hadm_id, intime, died, age, gender, race, insurance.
        """
        code, version = pl.col("icd_code"), pl.col("icd_version").str.strip_chars()
        kidney = self._read("hosp/diagnoses_icd").filter(
            ((version == "9") & code.str.starts_with("585"))
            | ((version == "10") & code.str.starts_with("N18"))
        )
        admissions = self._read(f"{self._people}/admissions")
        race = "race" if "race" in admissions.columns else "ethnicity"  # its name until 2.0
        intime, outtime = (pl.col(c).str.to_datetime(_TIME) for c in ("intime", "outtime"))
        return (
            self._read("icu/icustays")
            .filter(outtime - intime >= pl.duration(hours=num_hours))
            .join(kidney, on="hadm_id", how="semi")
            .join(admissions, on="hadm_id")
            .join(self._read(f"{self._people}/patients"), on="subject_id")
            .sort("stay_id")
            .with_row_index("stay")
            .with_columns(intime)
            .select(
                pl.col("stay").cast(pl.Int64),
                "subject_id",
                "hadm_id",
                "intime",
                pl.col("hospital_expire_flag").cast(pl.Int64).alias("died"),
                (
                    pl.col("anchor_age").cast(pl.Int64)
                    + pl.col("intime").dt.year()
                    - pl.col("anchor_year").cast(pl.Int64)
                ).alias("age"),
                "gender",
                pl.col(race).alias("race"),
                "insurance",
            )
        )

    def events(self, stays: pl.DataFrame, num_hours: int) -> pl.DataFrame:
        """Return the mean of each item in each hour: stay, itemid, hour, value.

        They are charted events, or labs where those are missing.
        """
        name = "icu/chartevents" if self.has_chart else "hosp/labevents"
        known = stays.select("stay", "subject_id", "intime")
        hour = (pl.col("charttime") - pl.col("intime")).dt.total_seconds() // 3600
        pieces = [
            piece.select("subject_id", "itemid", "charttime", "valuenum")
            .join(known, on="subject_id")
            .with_columns(
                pl.col("valuenum").cast(pl.Float64, strict=False),
                pl.col("charttime").str.to_datetime(_TIME, strict=False),
            )
            .with_columns(hour.alias("hour"))
            .filter(pl.col("hour").is_between(0, num_hours - 1), pl.col("valuenum").is_finite())
            .group_by("stay", "itemid", "hour")
            .agg(pl.col("valuenum").sum().alias("total"), pl.len().alias("num"))
            for piece in self._pieces(name)
        ]
        return (
            pl.concat(pieces)
            .group_by("stay", "itemid", "hour")
            .agg((pl.col("total").sum() / pl.col("num").sum()).alias("value"))
            .with_columns(pl.col("itemid").cast(pl.Int64))
            .sort("stay", "itemid", "hour")
        )

    def conditions(self, stays: pl.DataFrame) -> pl.DataFrame:
        """Return the categories of diagnoses of each stay's admission: stay, category."""
        category = pl.concat_str(
            pl.col("icd_version").str.strip_chars(),
            pl.lit(":"),
            pl.col("icd_code").str.slice(0, 3),
        )
        return (
            self._read("hosp/diagnoses_icd")
            .join(stays.select("stay", "hadm_id"), on="hadm_id")
            .select("stay", category.alias("category"))
            .filter(~pl.col("category").is_in(["9:585", "10:N18"]))  # what all of them have
            .unique()
            .sort("stay", "category")
        )

    def _read(self, name: str) -> pl.DataFrame:
        return pl.concat(self._pieces(name))

    def _pieces(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield a table, every column as text, in pieces that end where a row does."""
        file_name = self._name(name)
        if file_name is None:
            file_name = f"{name}.csv.gz"  # which is how it is missed below
        self._check_sum(file_name)
        with ExitStack() as stack:
            file = stack.enter_context(self._tree.open(file_name))
            if file_name.endswith(".gz"):
                file = cast(IO[bytes], stack.enter_context(gzip.open(file)))
            header = file.readline()
            rest = b""
            at_end = False
            while not at_end:
                piece = file.read(PIECE_BYTES)
                at_end = not piece
                rest += piece
                end = len(rest) if at_end else _end_of_row(rest)
                if end or at_end:
                    yield pl.read_csv(header + rest[:end], infer_schema=False)
                    rest = rest[end:]

    def _name(self, name: str) -> str | None:
        return next(
            (found for end in (".csv.gz", ".csv") if self._tree.has(found := name + end)), None
        )

    def _check_sum(self, name: str) -> None:
        """Compare a file with the checksum that is published beside it, once."""
        expected = self._sums.pop(name, None)
        if expected is None:
            return
        with self._tree.open(name) as file:
            found = hashlib.sha256()
            while piece := file.read(PIECE_BYTES):
                found.update(piece)
        if found.hexdigest() != expected:
            raise DataError(
                f"the SHA-256 of {name} is not the one in {SUMS}",
                hint="the file is damaged: get it again",
                where=str(self._tree.path),
            )


def _end_of_row(text: bytes) -> int:
    """Return where the last whole row ends; a line break in quotes ends none."""
    end = text.rfind(b"\n") + 1
    while end and text.count(b'"', 0, end) % 2:
        end = text.rfind(b"\n", 0, end - 1) + 1
    return end


def _published_sums(tree: Tree) -> dict[str, str]:
    if not tree.has(SUMS):
        return {}
    with tree.open(SUMS) as file:
        lines = file.read().decode("ascii", errors="replace").splitlines()
    return {words[1]: words[0] for line in lines if len(words := line.split()) == 2}
