"""Writes the archive of state directories that `test_earlier_release.py` starts daemons on.

    .venv/bin/python -m tests.integration.daemons.earlier_release.make_state COMMAND ARCHIVE

COMMAND is the `laser-vfl` of the release whose state is wanted, in an environment of its own. It
runs a federation of three clients: one run to the end, some people forgotten, and a second run in
which all four daemons are killed at once. That is the state in the archive. On a copy of it the
same release then goes on to the end of the second run; its predictions and parameters are in the
archive as well, under `expected`, for others to be compared with. So is a fingerprint of the
machine's arithmetic, as only the same arithmetic gives the same last bits.

`state-0.1.0.tar.xz` was made so with the code of commit 65a5f02. Everybody's last checkpoint in it
is that of step 200, and whole.
"""

import csv
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.support.daemons.harness import free_address
from tests.support.daemons.installed import Installation
from tests.support.data.people import People
from tests.support.oracle import arithmetic

ROSTER = ("bank", "shop", "telco")
TRAINING = {
    "representation_dim": 4,
    "batch_size": 16,
    "epochs": 60,
    "seed": 11,
    "checkpoint_every": 40,
}
KILL_AT = 200
NUM_FORGOTTEN = 3
ABOUT = """
import json, torch
from laser_vfl.core.release import __version__
print(json.dumps({"release": __version__, "torch": torch.__version__}))
"""


def main() -> None:
    command, archive = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch:
        state, after = Path(scratch, "state"), Path(scratch, "after")
        state.mkdir()
        with Installation(state, command) as installation:
            _write_files(installation)
            _leave_a_run_unfinished(installation)
        for log in state.glob("*.log"):
            log.unlink()
        shutil.copytree(state, after, symlinks=True)
        with Installation(after, command) as installation:
            expected = _go_on(installation)
        expected["about"] = _about(command)
        (state / "expected").mkdir()
        for name in ROSTER:
            shutil.copy(
                after / f"{name}-state" / "model" / "model.safetensors",
                state / "expected" / f"{name}.safetensors",
            )
        (state / "expected" / "expected.json").write_text(json.dumps(expected, indent=1))
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(state, arcname=".", filter=_anonymous)


def predictions(installation: Installation, name: str) -> list[dict[str, str]]:
    """What a client predicts of the ids in the file that both releases are asked about."""
    words = ("predict", "--config", f"{name}.yaml", "--ids", "ids.csv")
    return list(csv.DictReader(io.StringIO(installation.call(*words))))


def _write_files(installation: Installation) -> None:
    people, directory = People(240, seed=8), installation.path
    for name in ROSTER:
        people.write(directory, name, p_hold=0.8, num_features=3, test_share=0.2)
    held = [line.partition(",")[0] for line in (directory / "bank_test.csv").open()]
    (directory / "ids.csv").write_text("\n".join(held) + "\n")
    (directory / "forgotten.csv").write_text("\n".join(held[: NUM_FORGOTTEN + 1]) + "\n")
    address = free_address()
    installation.write(
        "coordinator",
        {
            "federation": "trial",
            "listen": address,
            "state": "./coordinator-state",
            "clients": list(ROSTER),
            "training": TRAINING,
            "restart_grace_s": 600.0,
        },
    )
    for name in ROSTER:
        tables = {table: f"{name}_{table}.csv" for table in ("train", "test")}
        config = {
            "federation": "trial",
            "name": name,
            "listen": "127.0.0.1:0",
            "coordinator": address,
            "state": f"./{name}-state",
            "data": {**tables, "id": "id", "label": "kind"},
            "model": {"representation": "mlp", "hidden": [6]},
            "threads": 1,
            "device": "cpu",
        }
        installation.write(name, config)


def _leave_a_run_unfinished(installation: Installation) -> None:
    everybody = ("coordinator", *ROSTER)
    installation.start(*everybody, options=["--insecure"])
    installation.wait(installation.num_finished, "the first run is finished")
    installation.wait(lambda: all(map(installation.manifest, ROSTER)), "all have published it")
    installation.stop_all()
    installation.call("forget", "--config", "bank.yaml", "--ids", "forgotten.csv")
    installation.start(*everybody, options=["--insecure"])
    installation.wait(installation.are_ready, "all are back")
    installation.call("retrain", "--config", "coordinator.yaml")
    installation.wait(
        lambda: min(map(installation.last_checkpoint, ROSTER)) >= KILL_AT, "there are checkpoints"
    )
    installation.kill(*everybody)
    assert installation.num_finished() == 1


def _go_on(installation: Installation) -> dict[str, Any]:
    """Return what the release itself makes of the state; the telco comes last."""
    first = installation.manifest("bank")["run"]
    installation.start("coordinator", "bank", "shop", options=["--insecure"])
    installation.wait(installation.are_ready, "two are back")
    rows = {}

    def both_used() -> bool:
        for name in ("bank", "shop"):
            rows[name] = predictions(installation, name)
        return all(any(row["blocks"] == "bank,shop" for row in each) for each in rows.values())

    installation.wait(both_used, "two predict with the model of the first run")
    assert installation.manifest("bank")["run"] == first
    installation.start("telco", options=["--insecure"])
    installation.wait(lambda: installation.num_finished() == 2, "the second run is finished")
    installation.wait(
        lambda: all(installation.manifest(name)["run"] != first for name in ROSTER),
        "all have published it",
    )
    manifests = {name: installation.manifest(name) for name in ROSTER}
    return {
        "first_run": first,
        "second_run": manifests["bank"]["run"],
        "num_steps": manifests["bank"]["num_steps"],
        "predictions": rows,
        "scores": {name: manifest["scores"] for name, manifest in manifests.items()},
    }


def _about(command: Path) -> dict[str, str]:
    """Which release it is, and the fingerprint of the arithmetic that it computed with."""
    python = command.parent / "python"
    done = subprocess.run([python, "-I", "-c", ABOUT], capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    done = subprocess.run([python, arithmetic.__file__], capture_output=True, check=True, text=True)
    return found | {"arithmetic": done.stdout.strip()}


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
