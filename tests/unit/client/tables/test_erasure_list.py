"""The list of people to forget: keyed digests in a file, which the command and the daemon read."""

import stat

import numpy as np
import pytest
import torch
import yaml

from laser_vfl.client.alignment.aligner import _with_known
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.serving.row_index import RowIndex, Rowset
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import data_digest, load_block
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.client.tables.table_listing import Keys, read_keys
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import DataError, StateUnwritable
from laser_vfl.data import blind_ids
from tests.support.data.client_people import digests_at, pseudonym_tables

KEYS = Keys(digest=b"a secret that is shared", order=b"the very own key of bank")
OTHER_KEYS = Keys(digest=KEYS.digest, order=b"another key of its own")


def forgotten_in(directory, keys=KEYS, federation="trial"):
    found = ErasureList(directory, keys, federation)
    found.refresh()
    return found


def test_nobody_is_forgotten_at_first(tmp_path):
    forgotten = forgotten_in(tmp_path)
    assert len(forgotten) == 0
    assert not forgotten.are(["ada", "bob"]).any()
    assert not forgotten.have(digests_at("bank", ["ada"])).any()


def test_those_who_were_added_are_forgotten_by_id_and_by_digest(tmp_path):
    assert forgotten_in(tmp_path).add(["ada", "cyd"]) == 2
    forgotten = forgotten_in(tmp_path)
    assert forgotten.are(["ada", "bob", "cyd"]).tolist() == [True, False, True]
    digests = blind_ids(["bob", "cyd"], KEYS.digest, "trial")
    assert forgotten.have(digests).tolist() == [False, True]
    assert len(forgotten) == 2


def test_a_new_shared_secret_brings_nobody_back(tmp_path):
    forgotten_in(tmp_path).add(["ada"])
    after = forgotten_in(tmp_path, Keys(b"a new secret of all", KEYS.order))
    assert after.are(["ada"]).all()


def test_adding_twice_changes_nothing(tmp_path):
    forgotten = forgotten_in(tmp_path)
    forgotten.add(["ada", "bob"])
    before = (tmp_path / "forgotten").read_bytes()
    assert forgotten.add(["bob", "ada", "bob"]) == 0
    assert (tmp_path / "forgotten").read_bytes() == before
    assert forgotten.add(["bob", "cyd"]) == 1
    assert len(forgotten) == 3


def test_the_file_is_private_and_says_nothing_without_the_own_key(tmp_path):
    forgotten_in(tmp_path).add(["ada lovelace"])
    path = tmp_path / "forgotten"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    assert b"ada lovelace" not in content
    assert blind_ids(["ada lovelace"], KEYS.digest, "trial").tobytes() not in content
    assert blind_ids(["ada lovelace"], KEYS.order, "trial").tobytes() not in content


def test_a_daemon_follows_the_file(tmp_path):
    daemon, command = forgotten_in(tmp_path), forgotten_in(tmp_path)
    command.add(["ada"])
    assert not daemon.are(["ada"]).any()
    before = daemon.stamp
    daemon.refresh()
    assert daemon.are(["ada"]).all()
    assert daemon.stamp != before
    (tmp_path / "forgotten").write_bytes(b"torn")
    with pytest.raises(DataError, match="cannot be read"):
        daemon.refresh()
    assert daemon.are(["ada"]).all(), "what was read before holds"


@pytest.mark.parametrize(("keys", "federation"), [(OTHER_KEYS, "trial"), (KEYS, "other")])
def test_a_list_that_would_match_nobody_is_an_error(tmp_path, keys, federation):
    forgotten_in(tmp_path).add(["ada"])
    with pytest.raises(DataError, match=r"another own\.key or federation"):
        forgotten_in(tmp_path, keys, federation)
    with pytest.raises(DataError, match=r"another own\.key or federation"):
        ErasureList(tmp_path, keys, federation).add(["bob"])


def test_a_directory_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(StateUnwritable):
        ErasureList(tmp_path / "nowhere", KEYS, "trial").add(["ada"])


def test_holdings_lose_them_and_nobody_else():
    def rows(*ids):
        numbers = torch.tensor([[float(ord(id[0]))] for id in ids])
        return Rowset(digests_at("bank", ids), numbers, list(ids))

    holdings = RowIndex([rows("ada", "bob"), rows("cyd", "ada", "dan")])
    left = holdings.without(lambda ids: np.array([id == "ada" for id in ids]))
    found = left.find(digests_at("bank", ["ada", "bob", "cyd", "dan"]))
    assert found.tolist() == [-1, 0, 1, 2]
    assert left.inputs(found[1:]).tolist() == [[98.0], [99.0], [100.0]]
    assert [list(people.ids) for people in left.people] == [["bob"], ["cyd", "dan"]]
    assert left.without(lambda ids: np.zeros(len(ids), bool)) is left


def gone_from(pseudonyms, *ids):
    gone = {digest.tobytes() for digest in digests_at("bank", ids)}
    return np.array([digest.tobytes() in gone for digest in pseudonyms.digests])


def test_a_naming_keeps_the_names_of_the_others():
    bank, shop = pseudonym_tables((["ada", "bob", "cyd"], ["cyd", "ada", "bob"]))
    names, _ = shop.names_for(digests_at("shop", ["ada", "bob", "cyd"]), 0)
    left = bank.without(gone_from(bank, "bob"))
    found = left.digests_of(names, 1)
    assert np.array_equal(found[[0, 2]], digests_at("bank", ["ada", "cyd"]))
    assert not found[1].any()
    assert left.known.sum() == 2
    assert left.is_new(digests_at("bank", ["bob"])).all()
    assert not left.points[gone_from(bank, "bob")].any()


def test_an_alignment_of_unaligned_ids_leaves_them_out():
    [bank] = pseudonym_tables((["ada", "bob", "cyd"],))
    left = bank.without(gone_from(bank, "bob"))
    digests, points = _with_known(left, digests_at("bank", ["new"]), digests_at("all", ["new"]))
    people = [digest.tobytes() for digest in digests]
    assert sorted(people) == sorted(d.tobytes() for d in digests_at("bank", ["ada", "cyd", "new"]))
    assert len(points) == 3


def test_namings_on_disk_are_rewritten(tmp_path):
    state = StateDirectory(tmp_path)
    for run in ("run-1", "run-2"):
        [bank] = pseudonym_tables((["ada", "bob", "cyd"],), run=run)
        PseudonymStore(state).write(bank)
    broken = tmp_path / "models" / "run-3" / "naming.safetensors"
    broken.parent.mkdir()
    broken.write_bytes(b"torn")
    bob = digests_at("bank", ["bob"])[0]
    PseudonymStore(state).purge_all(lambda digests: (digests == bob).all(axis=1))
    for run in ("run-1", "run-2"):
        path = tmp_path / "models" / run / "naming.safetensors"
        assert bob.tobytes() not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert PseudonymStore(state).read(run).known.sum() == 2


def test_the_keys_are_the_own_one_and_the_shared_one_if_there_is_one(tmp_path):
    state = StateDirectory(tmp_path)
    alone = read_keys(state, None)
    assert alone.digest == alone.order
    secret = tmp_path / "id.secret"
    secret.touch(0o600)
    secret.write_text("a secret of the clients alone\n")
    assert read_keys(state, secret) == Keys(b"a secret of the clients alone", alone.order)


@pytest.fixture
def config(tmp_path):
    text = {
        "federation": "trial",
        "name": "bank",
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "./state",
        "data": {"train": "train.csv", "test": "test.csv", "id": "id", "label": "kind"},
    }
    (tmp_path / "bank.yaml").write_text(yaml.safe_dump(text))
    (tmp_path / "train.csv").write_text("id,x,kind\nada,1,u\nbob,999,v\ncyd,3,v\n")
    (tmp_path / "test.csv").write_text("id,x,kind\ndan,1,u\n")
    return load_config(tmp_path / "bank.yaml", ClientConfig)


def test_a_block_is_fitted_without_them(config, tmp_path):
    forgotten = forgotten_in(tmp_path)
    whole = load_block(config, KEYS.digest, forgotten)
    assert len(whole.train.ids) == 3
    assert whole.forgotten == forgotten.stamp
    forgotten_in(tmp_path).add(["bob", "dan"])
    block = load_block(config, KEYS.digest, forgotten)
    assert list(block.train.ids) == ["ada", "cyd"]
    assert block.encoding.to_json()["columns"][0]["mean"] == 2.0
    assert len(block.train.inputs) == len(block.train.targets) == len(block.train.digests) == 2
    assert block.test is None
    assert block.forgotten == forgotten.stamp != whole.forgotten
    assert data_digest(block) != data_digest(whole), "it cannot come back to a run begun before"


def test_a_table_of_nobody_else_is_an_error(config, tmp_path):
    forgotten_in(tmp_path).add(["ada", "bob", "cyd"])
    with pytest.raises(DataError, match="everybody in this table is forgotten"):
        load_block(config, KEYS.digest, forgotten_in(tmp_path))


def test_an_error_in_a_row_says_that_some_rows_do_not_count(config, tmp_path):
    forgotten_in(tmp_path).add(["ada"])
    (tmp_path / "train.csv").write_text("id,x,kind\nada,1,u\nbob,inf,v\ncyd,3,w\n")
    with pytest.raises(DataError, match="infinite in row 1") as caught:
        load_block(config, KEYS.digest, forgotten_in(tmp_path))
    assert "forgotten are not counted" in caught.value.hint
