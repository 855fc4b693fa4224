"""`laser-vfl data prepare` writes what a real federation can be trained from."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.daemons.harness import Site, free_address

NAMES = ("bank", "shop", "telco")
TRAINED_WITHIN_S = 100.0


def prepare(site: Site, *words: str) -> dict[str, Any]:
    options = ("--clients", "3", "--p-miss", "0.3", "--out", "digits", "--format", "json")
    process = site.run("data", "data", "prepare", "digits", *options, *words)
    assert process.wait_exit() == 0, process.report()
    return dict(json.loads(process.stdout))


@pytest.mark.parametrize(
    "insecure",
    [False, True],
    ids=["mtls", "plaintext"],
)
@pytest.mark.timeout(240)
def test_what_was_prepared_trains_as_a_federation(plain_site: Site, insecure: bool) -> None:
    """The commands are those that are printed; only ports and the number of epochs are others."""
    flags = ("--insecure",) if insecure else ()
    result = prepare(plain_site, *flags)
    words = [shlex.split(command) for command in result["commands"]]
    assert words[0] == ["cd", "digits"]
    assert words[-1] == ["kill", "$coordinator"]
    plain_site.path = plain_site.path / "digits"
    _with_free_ports(plain_site.path)
    clients = []
    for command in words[1:-1]:
        assert command[0] == "laser-vfl"
        own = command[1 : command.index("2>")] if "2>" in command else command[1:]
        process = plain_site.run("-".join(own[:2]), *own)
        if own[0] == "certs":
            assert process.wait_exit() == 0, process.report()
        elif own[0] == "coordinator":
            process.wait_ready()
        else:
            clients.append(process)
    assert len(clients) == len(NAMES)
    for process in clients:
        assert process.wait_exit(TRAINED_WITHIN_S) == 0
    for name in NAMES:
        scores = json.loads((plain_site.path / f"{name}-state" / "scores.json").read_text())
        assert scores["task"] == "multiclass"
        assert len(scores["by_subset"]) == 4
        assert scores["num_samples"] == result["num_rows"][name]["test"]


def _with_free_ports(out: Path) -> None:
    coordinator = free_address()
    for path in out.glob("*.yaml"):
        config = yaml.safe_load(path.read_text())
        if path.stem == "coordinator":
            config["listen"] = coordinator
            config["training"]["epochs"] = 1
        else:
            own = {"listen": "127.0.0.1:0", "predict_listen": "127.0.0.1:0", "threads": 1}
            config |= {**own, "coordinator": coordinator}
            del config["advertise"]
        path.write_text(yaml.safe_dump(config))
