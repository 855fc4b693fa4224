"""A member whose disk is full: the others do not align for ever, and everybody is told why."""

import json
import resource
from collections.abc import Iterator

import pytest

from laser_vfl.config.test_policy import VARIABLE
from laser_vfl.remote.operations import coordinator_status, retrain
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Site, eventually

ROSTER = ["bank", "shop"]
RECALL_S = 1.0
POLICY = {
    "AlignmentPolicy": {"first_recall_s": RECALL_S, "longest_recall_s": 600.0},
    "WaitingTimes": {"after_failure_s": 0.1},
}
SMALL_BYTES = 100_000
"""More than a log, and less than what an alignment needs."""


@pytest.fixture
def pair(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Federation]:
    monkeypatch.setenv(VARIABLE, json.dumps(POLICY))
    federation = Federation(site, ROSTER, {"epochs": 1})
    yield federation
    for process in site.processes:
        assert "Traceback" not in process.stderr, process.name


def status(federation: Federation) -> dict[str, object]:
    return coordinator_status(federation.site.address, federation.site.operator_access())


def problem(federation: Federation, name: str) -> str:
    clients = {client["client"]: client for client in status(federation)["clients"]}  # type: ignore[attr-defined]
    return clients[name]["problem"] or ""


def num_counted(federation: Federation, name: str) -> int:
    """How many alignments count towards a client's daily limit."""
    times = json.loads((federation.site.path / f"{name}-state" / "alignments.json").read_text())
    return sum(moment > 0 for moment in times)


def begun_at(federation: Federation) -> list[float]:
    """When alignments for runs have begun."""
    path = federation.site.path / "coordinator-state" / "runs.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["time"] for line in lines if line["event"] == "aligning"]


def limit_files(federation: Federation, name: str, num_bytes: int | None) -> None:
    """Let no file of a client grow beyond a size, as on a disk that is full; None: let all."""
    pid = federation.clients[name].pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if num_bytes is None else num_bytes, hard))


def test_a_full_disk_is_noticed_before_the_others_align(pair: Federation) -> None:
    before, run = len(begun_at(pair)), pair.runs()[0]
    limit_files(pair, "shop", SMALL_BYTES)
    command = pair.site.run(
        "retrain",
        *("retrain", "--coordinator", pair.site.address, "--timeout", "3s"),
        *pair.site.tls_options,
    )
    eventually(lambda: problem(pair, "shop"), "status says why")
    assert command.wait_exit() == 7
    assert "shop cannot take part: its state directory cannot be written" in command.stderr
    assert status(pair)["waiting_for"] == ["shop"]
    assert len(begun_at(pair)) == before, "nobody was called to an alignment"
    limit_files(pair, "shop", None)
    eventually(lambda: run not in pair.runs(), "the run that was asked for has finished")
    assert not problem(pair, "shop")


def test_a_member_that_fails_after_the_alignment_waits_longer_each_time(pair: Federation) -> None:
    """Its models go where there is no directory, so it fails once the others have aligned."""
    before, run = len(begun_at(pair)), pair.runs()[0]
    models = pair.site.path / "shop-state" / "models"
    models.rename(models.with_name("away"))
    models.touch()
    retrain(pair.site.address, pair.site.operator_access())
    eventually(lambda: len(begun_at(pair)) >= before + 3, "it was called three times")
    assert problem(pair, "shop").startswith("its state directory cannot be written")
    _, first, second, third = begun_at(pair)[before - 1 : before + 3]
    assert second - first >= RECALL_S
    assert third - second >= 2 * RECALL_S
    eventually(lambda: num_counted(pair, "bank") == before, "bank's alignments cost it nothing")
    assert num_counted(pair, "shop") > before, "its own count"
    models.unlink()
    models.with_name("away").rename(models)
    eventually(lambda: run not in pair.runs(), "the run that was asked for has finished")
    assert num_counted(pair, "bank") == before + 1
