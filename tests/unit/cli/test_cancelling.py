"""`runs cancel` says which run it has cancelled, if that had begun."""

import json

import pytest

from laser_vfl.cli.main import app
from laser_vfl.cli.runs import approving


@pytest.mark.parametrize(("run", "told"), [("run-1", "run-1"), ("", None)])
def test_it_prints_the_run_that_it_cancels(run, told, monkeypatch, capsys):
    asked = []

    def cancel(address, access):
        asked.append(address)
        return run

    monkeypatch.setattr(approving, "cancel_run", cancel)
    monkeypatch.setattr(approving, "asked_coordinator", lambda *_: ("127.0.0.1:1", None, None))
    command = ["runs", "cancel", "--coordinator", "127.0.0.1:1"]
    app([*command, "--format", "json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == {"run": told, "state": "cancelled"}
    app(command, standalone_mode=False)
    assert run in capsys.readouterr().out
    assert asked == ["127.0.0.1:1"] * 2
