"""The overlaps that four real daemons find privately equal those of the plain text."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest

from tests.support.daemons.dry_runs import (
    NOBODY,
    Counts,
    counts,
    dry_run,
    no_tracebacks,
    refused_by_all,
    wait_for_activity,
)
from tests.support.daemons.harness import Process, Site

ROSTER = ["bank", "shop", "telco", "clinic"]
SUFFIXES = {"bank": "csv", "shop": "parquet", "telco": "npz", "clinic": "parquet"}
INTEGERS = ("telco", "clinic")
"""These tables have ids as integers, and so only people who have a number."""
TABLES = {
    "bank": ("train", "test", "serve"),
    "shop": ("train", "test", "serve"),
    "telco": ("train", "test", "serve"),
    "clinic": ("train", "serve"),
}
NUMBERS = [str(n) for n in (0, 7, -7, 70, 2**40, 2**63 - 1, -(2**62), *range(1000, 1045))]
NAMES = [f"Zoë {n}" for n in range(16)] + [f"ﬁ-Ⅷ Åsa/日本 {n}" for n in range(16)] + ["007", "1e3"]
PEOPLE = [unicodedata.normalize("NFC", name) for name in (*NUMBERS, *NAMES)]

Held = dict[str, dict[str, list[str]]]
"""Whom each client has in each of its tables."""


@dataclass
class Gathering:
    """Four daemons that wait for a fifth."""

    site: Site
    clients: dict[str, Process]
    held: Held = field(default_factory=dict)
    num_written: int = 0

    def write(self, held: Held) -> None:
        """Replace all tables; return when the serving tables, which are watched, were read."""
        self.held = held
        self.num_written += 1
        for client, tables in held.items():
            for table, people in tables.items():
                write(self.site, client, table, people)
        for client, process in self.clients.items():
            process.wait_for(f"rows to serve from {client}_serve", times=self.num_written)


@pytest.fixture(scope="module")
def four(shared_site: Site) -> Gathering:
    site = shared_site
    gathering = Gathering(site, {})
    gathering.write(random_holdings(0))
    site.start_coordinator(site.coordinator_config([*ROSTER, NOBODY], {}))
    for name in ROSTER:
        data = {table: file_name(name, table) for table in TABLES[name]}
        config = site.client_config(name, data={**data, "id": "id", "features": ["x"]})
        del config["id_secret_file"]
        gathering.clients[name] = site.start_client(config)
    wait_for_activity(site, dict.fromkeys(ROSTER, "gathering"))
    return gathering


@pytest.mark.core
@pytest.mark.parametrize("seed", range(4))
def test_patterns_equal_those_of_the_plain_text(seed: int, four: Gathering) -> None:
    held = random_holdings(seed)
    if seed:  # the daemons have started with those of 0
        four.write(held)
    check(four, held, asker=ROSTER[seed])


def test_a_client_with_nobody_in_common(four: Gathering) -> None:
    held = random_holdings(5)
    held["clinic"] = {table: [str(10**9 + n) for n in range(9)] for table in TABLES["clinic"]}
    held["shop"]["test"] = ["only here"]
    four.write(held)
    check(four, held, asker="clinic")
    found = dry_run(four.clients["clinic"])
    assert found["tables"]["train"]["num_shared"] == 0
    assert found["tables"]["train"]["num_rows"] == 9


DUPLICATES: dict[str, tuple[str, str, Sequence[str], str]] = {
    "the same text": ("bank", "train", ["a", "b", "a"], "rows 1 and 3"),
    "spaces around": ("bank", "test", ["x", "7", " 7 "], "rows 2 and 3"),
    "two forms of Unicode": ("shop", "test", ["Zo\u00eb 1", "q", "Zoe\u0308 1"], "rows 1 and 3"),
    "integers": ("telco", "train", ["5", "6", "7", "7"], "rows 3 and 4"),
    "no rows": ("shop", "test", [], "has no rows"),
}


@pytest.mark.parametrize("flaw", DUPLICATES)
def test_a_table_that_cannot_be_used_is_named(flaw: str, four: Gathering) -> None:
    client, table, people, what = DUPLICATES[flaw]
    write(four.site, client, table, people, as_they_are=True)
    try:
        owner, other = refused_by_all(four.clients[client], four.clients["clinic"])
    finally:
        write(four.site, client, table, four.held[client][table])
    assert file_name(client, table) in owner, "the owner of the table is told which one it is"
    assert what in owner
    assert f"{client} cannot take part in the alignment" in other, "others are told who"
    assert file_name(client, table) not in other, "others are not told what is in it"
    assert what not in other
    assert all(process.alive for process in four.clients.values())


def test_after_all_that_they_still_align(four: Gathering) -> None:
    """Last in this file."""
    held = random_holdings(9)
    four.write(held)
    check(four, held, asker="shop")
    no_tracebacks(four.site)


def random_holdings(seed: int) -> Held:
    """Who holds whom: each person is for training or for testing, and perhaps to be served."""
    rng = np.random.default_rng(seed)
    held: Held = {client: {table: [] for table in TABLES[client]} for client in ROSTER}
    share = rng.uniform(0.1, 0.9, len(ROSTER))
    for person in PEOPLE:
        table = "train" if rng.random() < 0.6 else "test"
        for client, p_hold in zip(ROSTER, share, strict=True):
            if client in INTEGERS and person not in NUMBERS:
                continue
            if rng.random() < p_hold and table in TABLES[client]:
                held[client][table].append(person)
            if rng.random() < 0.2:
                held[client]["serve"].append(person)
    for tables in held.values():
        for table, people in tables.items():
            if not people:  # which no table may be
                people.append(f"9{seed}{len(table)}")
            rng.shuffle(people)
    return held


def check(four: Gathering, held: Held, asker: str) -> None:
    """Compare a dry run with what sets of plain text say."""
    found = dry_run(four.clients[asker])
    assert found["members"] == ROSTER
    assert found["absent"] == [NOBODY]
    everybody = {
        client: {**tables, "serve": set().union(*tables.values())}
        for client, tables in held.items()
    }
    for table in ("train", "test", "serve"):
        lists = {client: set(tables.get(table, ())) for client, tables in everybody.items()}
        assert counts(found, table) == expected(lists), (table, asker)
        assert found["tables"][table]["num_rows"] == len(lists[asker])


def expected(lists: dict[str, set[str]]) -> Counts:
    """Return how many people exactly these clients hold."""
    people = set().union(*lists.values())
    return Counter(frozenset(c for c, held in lists.items() if p in held) for p in people)


def file_name(client: str, table: str) -> str:
    return f"{client}_{table}.{SUFFIXES[client]}"


def write(
    site: Site, client: str, table: str, people: Iterable[str], *, as_they_are: bool = False
) -> None:
    """Write a table in the client's own manner of spelling ids, and all at once."""
    path = site.path / file_name(client, table)
    new = path.with_name(f"new.{path.suffix}")
    spell = str if as_they_are else SPELLINGS[client]
    ids = [spell(person) for person in people]
    x = np.arange(len(ids), dtype=np.float64)
    if client in INTEGERS:
        numbers = np.array([int(id) for id in ids], dtype=np.int64)
        if path.suffix == ".npz":
            with new.open("wb") as file:
                np.savez(file, id=numbers, x=x)
        else:
            pl.DataFrame({"id": numbers, "x": x}).write_parquet(new)
    else:
        frame = pl.DataFrame({"id": ids, "x": x}, schema={"id": pl.String, "x": pl.Float64})
        if path.suffix == ".csv":
            frame.write_csv(new)
        else:
            frame.write_parquet(new)
    new.replace(path)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "bank": lambda person: f"  {person}\t" if len(person) % 2 else person,
    "shop": lambda person: unicodedata.normalize("NFD", person) + " ",
    "telco": str,
    "clinic": str,
}
