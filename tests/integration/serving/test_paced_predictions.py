"""Scoring a file when peers limit how much they answer: slower, and with all blocks."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Authority, Process, Site

ROSTER = ["bank", "shop", "telco"]
NUM_PEOPLE = 12_000
SAMPLES_PER_S = 4_000.0


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Federation]:
    """Clients that have many people to score, and answer each other little at a time."""
    with Site(tmp_path_factory.mktemp("paced"), authority) as site:
        ids = [f"new-{number}" for number in range(NUM_PEOPLE)]
        columns = {
            f"x{j}": [float((n * (j + 3)) % 11) for n in range(NUM_PEOPLE)] for j in range(5)
        }
        for name in ROSTER:
            pl.DataFrame({"id": ids, **columns}).write_csv(site.path / f"{name}_serve.csv")
        pl.DataFrame({"id": ids}).write_csv(site.path / "ids.csv")
        yield Federation(
            site, ROSTER, {}, alignment="hmac", serving={"samples_per_s": SAMPLES_PER_S}
        )


def test_a_file_is_scored_with_all_blocks_at_the_pace_that_peers_allow(limited: Federation) -> None:
    limited.wait_whole()
    summary = _score(limited, "--require-blocks").summary
    assert summary["num_predicted"] == NUM_PEOPLE
    assert list(summary["by_blocks"]) == [",".join(ROSTER)]
    assert summary["num_lacking"] == summary["num_lacking_up"] == 0
    assert summary["seconds"] >= NUM_PEOPLE / SAMPLES_PER_S - 2.2, "peers allow no more"
    peers = {peer["client"]: peer for peer in limited.status("bank")["peers"]}
    for name in ROSTER[1:]:
        assert peers[name]["available"]
        assert peers[name]["num_limited"] > 0, "this client is told that it is refused"
        (asked,) = [p for p in limited.status(name)["peers"] if p["client"] == "bank"]
        assert asked["num_refused"] >= peers[name]["num_limited"]


def test_blocks_that_the_deadline_leaves_out_are_counted_and_can_be_required(
    limited: Federation,
) -> None:
    limited.wait_whole()
    scored = _score(limited, "--deadline", "300ms")
    summary = scored.summary
    assert summary["num_predicted"] == NUM_PEOPLE
    with scored.out.open() as file:
        rows = list(csv.DictReader(file))
    num_whole = sum(row["blocks"] == ",".join(ROSTER) for row in rows)
    assert 0 < num_whole < NUM_PEOPLE
    assert summary["num_lacking_up"] == summary["num_lacking"] == NUM_PEOPLE - num_whole
    assert set(summary["lacking"]) == set(ROSTER[1:])
    for name in ROSTER[1:]:
        assert f"bank asks {name} too much" in summary["peers"][name]
    required = _score(limited, "--deadline", "300ms", "--require-blocks", exit_code=8)
    num_lacking = required.summary["num_lacking_up"]
    assert num_lacking > 0
    assert f"{num_lacking} samples lack a block of a client that is up" in required.process.stderr


class Scored:
    """A file that was scored at bank."""

    def __init__(self, process: Process, out: Path) -> None:
        self.process = process
        self.out = out

    @property
    def summary(self) -> dict[str, Any]:
        return dict(json.loads(self.process.stdout))


def _score(limited: Federation, *options: str, exit_code: int = 0) -> Scored:
    out = limited.site.path / "predictions.csv"
    files = ("--config", "bank.yaml", "--ids", "ids.csv", "--out", str(out))
    process = limited.site.run("command", "predict", *files, "--format", "json", *options)
    assert process.wait_exit() == exit_code, process.report()
    return Scored(process, out)
