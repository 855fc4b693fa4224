"""`forget`: what it does without a daemon, what it says, and what it refuses."""

import json

import numpy as np
import pytest
import yaml

from laser_vfl.cli.forget import run_forget
from laser_vfl.core.errors import ConfigError, DataError

CONFIG = {
    "federation": "trial",
    "name": "bank",
    "listen": "127.0.0.1:0",
    "coordinator": "127.0.0.1:1",
    "state": "./state",
    "data": {"train": "train.csv", "test": "test.csv", "id": "id", "label": "kind"},
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bank.yaml").write_text(yaml.safe_dump(CONFIG))
    (tmp_path / "train.csv").write_text("id,x,kind\na,1,u\nb,2,v\n")
    (tmp_path / "test.csv").write_text("id,x,kind\nc,1,u\n")
    return tmp_path


def forget(site, text, **keys):
    (site / "people.csv").write_text(text)
    keys = {"list_count": False, "as_json": True, **keys}
    run_forget(site / "bank.yaml", site / "people.csv", **keys)


def test_it_tells_how_many_are_held_and_forgotten(site, capsys):
    forget(site, "id\na\n c \nz\na\n")
    said = json.loads(capsys.readouterr().out)
    assert (said["num_ids"], said["num_held"], said["num_new"]) == (3, 2, 3)
    forget(site, "name,id\nzoe,z\nyve,y\n")
    said = json.loads(capsys.readouterr().out)
    assert (said["num_ids"], said["num_held"], said["num_new"]) == (2, 0, 1)
    assert said["num_forgotten"] == 4
    noted = (site / "state" / "audit.jsonl").read_text().splitlines()
    assert [(json.loads(n)["event"], json.loads(n)["num_new"]) for n in noted] == [
        ("forgot", 3),
        ("forgot", 1),
    ]


def test_people_of_arrays_with_labels_are_counted(site, capsys):
    """In a file of arrays without `features`, the label is no part of the block."""
    for name, ids in (("train", ["a", "b"]), ("test", ["c"])):
        block = np.ones((len(ids), 2), dtype=np.float32)
        np.savez(site / f"{name}.npz", id=np.array(ids), x=block, kind=np.array(["u"] * len(ids)))
    data = CONFIG["data"] | {"train": "train.npz", "test": "test.npz"}
    (site / "bank.yaml").write_text(yaml.safe_dump(CONFIG | {"data": data}))
    forget(site, "id\na\nc\nz\n")
    said = json.loads(capsys.readouterr().out)
    assert (said["num_ids"], said["num_held"], said["problem"]) == (3, 2, "")


def test_the_column_of_ids_may_be_called_as_in_the_tables(site, capsys):
    data = CONFIG["data"] | {"id": "person"}
    (site / "bank.yaml").write_text(yaml.safe_dump(CONFIG | {"data": data}))
    forget(site, "name,person\nzoe,z\nyve,y\n")
    assert json.loads(capsys.readouterr().out)["num_ids"] == 2


def test_it_tells_a_person_what_may_remain(site, capsys):
    forget(site, "id\na\nz\n", as_json=False)
    said = capsys.readouterr().out
    assert "2 of 2 people are forgotten from now on by bank, 2 in all" in said
    assert "1 of them are in its tables now" in said
    for needed in ("retrain", "checkpoints", "peers", "backups", "not touched", "run under way"):
        assert needed in said


def test_only_the_number_is_shown(site, capsys):
    forget(site, "id\na\nz\n")
    capsys.readouterr()
    run_forget(site / "bank.yaml", None, list_count=True, as_json=False)
    assert capsys.readouterr().out == "bank has forgotten 2 people\n"
    run_forget(site / "bank.yaml", None, list_count=True, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"client": "bank", "num_forgotten": 2}


def test_counting_creates_nothing(site, capsys):
    before = sorted(site.rglob("*"))
    run_forget(site / "bank.yaml", None, list_count=True, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"client": "bank", "num_forgotten": 0}
    (site / "state").mkdir()
    run_forget(site / "bank.yaml", None, list_count=True, as_json=False)
    assert capsys.readouterr().out == "bank has forgotten 0 people\n"
    assert sorted(site.rglob("*")) == sorted([*before, site / "state"])


def test_a_table_that_cannot_be_read_holds_nothing_up(site, capsys):
    (site / "train.csv").write_text("nothing\n")
    forget(site, "id\na\n")
    said = json.loads(capsys.readouterr().out)
    assert (said["num_held"], said["num_new"]) == (None, 1)
    assert "train.csv" in said["problem"]


@pytest.mark.parametrize(
    "text", ["", "id\n", "id,name\n1,2,3\n", "7\n8\n", "id\n  \n", "a,b\n1,2\n"]
)
def test_a_wrong_file_forgets_nobody(site, text):
    with pytest.raises(DataError) as caught:
        forget(site, text)
    assert "\n" not in str(caught.value)
    assert not (site / "state" / "forgotten").exists()


def test_it_is_told_what_to_do(site):
    with pytest.raises(ConfigError, match="not clear"):
        forget(site, "id\na\n", list_count=True)
    with pytest.raises(ConfigError, match="not clear"):
        run_forget(site / "bank.yaml", None, list_count=False, as_json=False)


def test_a_key_that_was_replaced_is_noticed(site):
    forget(site, "id\na\n")
    (site / "state" / "own.key").write_bytes(bytes(32))
    with pytest.raises(DataError, match="another own"):
        forget(site, "id\na\n")


def test_another_user_is_refused(site, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        forget(site, "id\na\n")
