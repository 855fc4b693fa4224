"""`retrain` ends at once when the run that it asked for is cancelled before it begins."""

import pytest

from laser_vfl.cli import retrain as command
from laser_vfl.core.errors import ExitCode, TrainingStopped

ASKED = {"seed": 7, "waiting_for": ["telco"]}


def status(**changes):
    clients = [{"client": name, "has_head": name == "bank"} for name in ("bank", "telco")]
    return {
        "clients": clients,
        "run": None,
        "training": False,
        "wanted": False,
        "waiting_for": [],
        "seed": 7,
        "last_run": "run-1",
        "last_outcome": "finished",
        **changes,
    }


@pytest.fixture
def ask(monkeypatch):
    """Ask for a run of a coordinator that tells these statuses one after the other, no more."""

    def asked(*told):
        statuses = iter([status(), *told])
        monkeypatch.setattr(command, "coordinator_status", lambda *_: next(statuses))
        monkeypatch.setattr(command, "POLL_S", 0.0)
        requester = command.RunRequester("127.0.0.1:1", None, (None, None, None), "1h")
        requester.ask(lambda *_: ASKED, as_json=True)

    return asked


def test_a_run_that_is_cancelled_while_it_waits_ends_the_command(ask):
    with pytest.raises(TrainingStopped, match="cancelled") as caught:
        ask(status(wanted=True, waiting_for=["telco"]), status())
    assert caught.value.exit_code is ExitCode.STOPPED


def test_a_run_that_waits_and_then_trains_is_told(ask, capsys):
    waits = status(wanted=True, waiting_for=["telco"])
    ask(waits, status(wanted=True, run="run-2"), status(run="run-2", training=True))
    assert '"run": "run-2"' in capsys.readouterr().out


def test_a_run_that_was_quick_is_no_cancelled_one(ask, capsys):
    ask(status(last_run="run-2"))
    assert '"state": "finished"' in capsys.readouterr().out
