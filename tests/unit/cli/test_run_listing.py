"""`runs list`: which runs a federation has, as its status tells."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from laser_vfl.cli.runs.run_listing import listing, print_listing
from laser_vfl.cli.status import asked_as


def status(**changes):
    clients = [
        {"client": "bank", "model_run": "run-2"},
        {"client": "shop", "model_run": "run-1"},
        {"client": "telco", "model_run": None},
    ]
    found = {"clients": clients, "run": None, "training": False, "requests": [], "last_run": None}
    return {
        **found,
        "wanted": False,
        "waiting_for": [],
        "seed": 7,
        "last_outcome": None,
        "next_run_at": None,
        "held_run": None,
        "held_by": [],
        **changes,
    }


def runs(**changes):
    return [tuple(run.values()) for run in listing(status(**changes))["runs"]]


def test_the_last_run_and_the_one_under_way_come_last():
    found = runs(run="run-3", training=True, last_run="run-2", last_outcome="finished")
    assert found == [
        ("run-1", "finished", ["shop"]),
        ("run-2", "finished", ["bank"]),
        ("run-3", "training", []),
    ]


def test_a_run_that_came_to_nothing_is_shown_with_the_reason():
    found = runs(last_run="run-3", last_outcome="shop cannot take part")
    assert found[-1] == ("run-3", "shop cannot take part", [])
    assert runs(run="run-3")[-1] == ("run-3", "aligned", [])


def test_who_asks_and_when_the_next_is_due_are_told():
    listed = listing(status(requests=["telco"], next_run_at=12.5))
    assert (listed["requests"], listed["next_run_at"]) == (["telco"], 12.5)


def test_a_run_that_is_held_is_shown_as_that():
    held = runs(last_run="run-3", last_outcome="finished", held_run="run-3", held_by=["shop"])
    assert held[-1] == ("run-3", "held", [])


def test_a_run_that_is_asked_for_is_shown_with_whom_it_waits_for():
    listed = listing(status(wanted=True, waiting_for=["telco"]))
    assert listed["next_run"] == {"seed": 7, "waiting_for": ["telco"]}
    assert listing(status())["next_run"] is None
    assert listing(status(wanted=True, run="run-3"))["next_run"] is None


def test_a_listing_for_a_person_says_whom_the_next_run_waits_for():
    console = Console(file=StringIO(), width=100)
    print_listing(listing(status(wanted=True, waiting_for=["telco"])), console)
    assert "telco" in console.file.getvalue()


def test_a_listing_has_complete_commands():
    console = Console(file=StringIO(), width=200)
    print_listing(listing(status(requests=["shop"])), console, asked_as(Path("c o.yaml"), None))
    assert "laser-vfl runs approve shop --config 'c o.yaml'" in console.file.getvalue()
    assert asked_as(None, "127.0.0.1:7000") == "--coordinator 127.0.0.1:7000"
