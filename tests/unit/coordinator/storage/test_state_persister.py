"""What the coordinator has on disk, and what it does when the disk fails."""

import asyncio
import json
import threading

import numpy as np
import pytest

from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.coordinator.rules.directives import State
from laser_vfl.coordinator.rules.run_start import StartRule
from laser_vfl.coordinator.storage.database import FILE, Store
from laser_vfl.coordinator.storage.state_persister import StatePersister, fingerprint
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import AddressError, ConfigError
from tests.support.fakes.coordinator_calls import called, play_out
from tests.support.fakes.simulated_federation import Play, started


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    yield store
    store.close()


def reopened(store, path):
    """What another coordinator finds."""
    store.close()
    return Store(path)


def fail(store, *, failing=True):
    """Have the disk refuse every write, or take them again."""
    store._db.execute(f"PRAGMA query_only={'ON' if failing else 'OFF'}")


def test_what_was_saved_is_loaded(store, tmp_path):
    assert store.load("ours") is None
    assert store.save("ours", {"run": None, "last": ["run-1", "finished"]})
    assert not store.save("ours", {"last": ["run-1", "finished"], "run": None}), "nothing new"
    assert store.save("ours", {"run": {"id": "run-2"}})
    again = reopened(store, tmp_path)
    assert again.load("ours") == {"run": {"id": "run-2"}}
    again.close()


def test_what_was_saved_under_other_settings_is_not_loaded(store):
    store.save("ours", {"run": None})
    assert store.load("others") is None


def test_results_are_loaded_as_they_were(store, tmp_path):
    groups = tuple(Group(mask, 1 + mask % 3) for mask in range(1, 3000))
    wide = (Group(2**63 - 1, 2), Group(2**63, 1), Group(2**64 - 1, 3))
    rows = {g: np.arange(group.size) + 2**40 for g, group in enumerate(groups) if g % 2}
    results = {
        "bank": {
            "train": ClientAlignment(groups, rows),
            "test": ClientAlignment((), {}),
            "serve": ClientAlignment(wide, {0: np.array([1, 0]), 2: np.array([5, 3, 4])}),
        },
        "shop": {"train": ClientAlignment(groups, {})},
    }
    store.save_results("run-1", results)
    again = reopened(store, tmp_path)
    found = again.load_results("run-1")
    assert {client: list(tables) for client, tables in found.items()} == {
        client: list(tables) for client, tables in results.items()
    }
    for client, tables in results.items():
        for part, expected in tables.items():
            assert found[client][part].groups == expected.groups
            assert found[client][part].rows.keys() == expected.rows.keys()
            for group, told in expected.rows.items():
                np.testing.assert_array_equal(found[client][part].rows[group], told)
    assert again.load_results("run-2") == {}
    again.save_results("", {})
    assert again.load_results("run-1") == {}
    again.close()


def test_a_second_coordinator_in_the_same_directory_is_refused(store, tmp_path, monkeypatch):
    monkeypatch.setattr("laser_vfl.coordinator.storage.database.BUSY_S", 0.05)
    with pytest.raises(ConfigError, match="another coordinator uses the directory"):
        Store(tmp_path, where="coordinator.yaml:3:1")


@pytest.mark.parametrize("damage", ["file", "document"])
def test_a_damaged_file_is_refused_with_a_hint(store, tmp_path, damage):
    store.save("ours", {"run": None})
    if damage == "document":
        store._db.execute("UPDATE document SET value = '{' WHERE key = 'federation'")
    store.close()
    if damage == "file":
        (tmp_path / FILE).write_bytes(b"not a database at all " * 500)
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        Store(tmp_path).load("ours")
    assert FILE in caught.value.hint


def test_an_endless_group_on_disk_is_refused(store):
    row = ("run-1", "a", "train", 0, "3", float("inf"), None)
    store._db.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    with pytest.raises(ConfigError, match="cannot be used"):
        store.load_results("run-1")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        Store(tmp_path / "file" / "state")


def test_a_federation_goes_on_from_memory(store, tmp_path):
    play = started("a", "b")
    asyncio.run(StatePersister(store, "ours").keep(play.federation))
    after = Play("a", "b").federation
    again = reopened(store, tmp_path)
    StatePersister(again, "ours").recall(after)
    assert after.run.membership.view == play.view
    again.close()


def test_a_damaged_document_is_refused_in_words_that_can_be_printed(store):
    document = json.loads(json.dumps(started("a", "b").federation.snapshot()))
    document["samples"]["\ud800\n"] = 2
    store.save("ours", document)
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        StatePersister(store, "ours").recall(Play("a", "b").federation)
    assert caught.value.message.isprintable()


def test_a_run_under_way_is_not_overwritten_under_other_settings(store):
    play = started("a", "b")
    asyncio.run(StatePersister(store, "ours").keep(play.federation))
    other = Play("a", "b").federation
    with pytest.raises(ConfigError, match="run run-1 is under way, and began under other settings"):
        StatePersister(store, "other settings").recall(other)
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    asyncio.run(StatePersister(store, "ours").keep(play.federation))
    StatePersister(store, "other settings").recall(other)
    assert other.run is None


def test_the_rows_of_a_run_are_kept_until_all_have_them(store):
    play, memory = Play("a", "b"), StatePersister(store, "ours")
    play.join("a", 1, 2)
    play.join("b", 2, 3)
    asyncio.run(memory.keep(play.federation))
    found = store.load_results("run-1")
    assert found["a"]["train"].groups == play.outcome("a")["train"].groups
    asyncio.run(memory.forget_results(play.federation))
    assert store.load_results("run-1")
    play.ready("a", "b")
    asyncio.run(memory.keep(play.federation))
    asyncio.run(memory.forget_results(play.federation))
    assert store.load_results("run-1") == {}


def test_a_failing_disk_is_noticed_and_so_is_its_recovery(store, caplog):
    play, memory = started("a", "b"), StatePersister(store, "ours")
    fail(store)
    for _ in range(3):
        assert not asyncio.run(memory.keep(play.federation))
    assert caplog.text.count("the state cannot be written") == 1
    assert store.load("ours") is None
    fail(store, failing=False)
    assert asyncio.run(memory.keep(play.federation))
    assert store.load("ours")["run"]["id"] == "run-1"


def test_nothing_is_told_that_is_not_on_disk(store):
    async def scene(service, a, b):
        await a.register()
        a.open()
        await a.heard.get()
        fail(store)
        with pytest.raises(AddressError, match="cannot write its state"):
            await b.register()
        a.beat()
        await asyncio.sleep(0.05)
        assert a.heard.empty()
        fail(store, failing=False)
        await b.register()
        assert b.incarnation == 2
        b.open()
        directive = await a.heard.get()
        assert [entry.client for entry in directive.addresses] == ["a", "b"]

    play_out(scene, "a", "b", memory=StatePersister(store, "ours"))


class Slow:
    """A disk that takes its time for alignments."""

    def __init__(self, store):
        self.may_end, self.begun = threading.Event(), threading.Event()
        self._store, self._save_results = store, store.save_results
        store.save_results = self._slowly

    def _slowly(self, run, results):
        self.begun.set()
        assert self.may_end.wait(10)
        self._save_results(run, results)


async def aligned_slowly(slow, a, b):
    """Let two clients do their part in an alignment, until its outcome is being written."""
    call = await called(a, b)
    for caller in (a, b):
        await caller.commit(call.id)
    await asyncio.gather(a.hear("commitments"), b.hear("commitments"))
    for caller in (a, b):
        await caller.submit(call.id)
    assert await asyncio.to_thread(slow.begun.wait, 10)
    return call.id


def test_the_event_loop_goes_on_while_an_alignment_is_written(store):
    slow = Slow(store)

    async def scene(service, a, b, c):
        run = await aligned_slowly(slow, a, b)
        status = await asyncio.wait_for(service.GetStatus(None, None), 1)
        assert [client.up for client in status.clients] == [True, True, False]
        assert not status.run, "the rules hear of it when it is on disk"
        fetching = asyncio.create_task(a.fetch(run))
        coming = asyncio.create_task(c.register())
        await asyncio.sleep(0.05)
        assert not fetching.done(), "nobody is told what is not on disk"
        assert not coming.done(), "an incarnation is on disk before it is told"
        slow.may_end.set()
        await coming
        assert c.incarnation == 3
        assert await fetching
        assert store.load_results(run).keys() == {"a", "b"}
        assert [r["client"] for r in store.load("ours")["registry"]["registrations"]] == [
            *("a", "b", "c")
        ]

    play_out(
        scene,
        *("a", "b", "c"),
        memory=StatePersister(store, "ours"),
        is_obliging=False,
        start=StartRule(quorum=2, after_s=0),
    )


def test_the_event_loop_goes_on_while_the_state_is_written(store):
    """And nobody hears of what is not on disk yet."""
    may_end, save = threading.Event(), store.save

    def slowly(*what):
        assert threading.current_thread() is not threading.main_thread()
        assert may_end.wait(10)
        return save(*what)

    async def scene(service, a, b):
        await a.register()
        a.open()
        await a.heard.get()
        store.save = slowly
        coming = asyncio.create_task(b.register())
        await asyncio.sleep(0.05)
        await asyncio.wait_for(service.GetStatus(None, None), 1)
        b.incarnation = 2
        b.open()
        await asyncio.sleep(0.05)
        assert not coming.done()
        assert a.heard.empty()
        assert b.heard.empty()
        may_end.set()
        await coming
        assert await b.heard.get()

    play_out(scene, "a", "b", memory=StatePersister(store, "ours"))


def test_a_document_that_names_a_run_is_never_on_disk_without_its_alignment(store):
    """Whatever is on disk when the coordinator is killed, a new one can go on from it."""
    slow = Slow(store)
    saved = []
    save = store.save
    store.save = lambda *what: saved.append((what[1], slow.may_end.is_set())) or save(*what)

    async def scene(service, a, b):
        run = await aligned_slowly(slow, a, b)
        slow.may_end.set()
        await asyncio.gather(a.fetch(run), b.fetch(run))
        first = next(written for document, written in saved if document["run"])
        assert first

    play_out(scene, "a", "b", memory=StatePersister(store, "ours"), is_obliging=False)


def test_closing_waits_for_the_thread(store):
    slow = Slow(store)

    async def scene():
        memory = StatePersister(store, "ours")
        writing = asyncio.create_task(memory.write_results("run-1", {}))
        await asyncio.to_thread(slow.begun.wait, 10)
        writing.cancel()
        closing = asyncio.create_task(memory.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        slow.may_end.set()
        await closing

    asyncio.run(scene())


CONFIG = """
federation: churn
listen: 127.0.0.1:7000
state: ./state
clients: [a, b]
training: {representation_dim: 4, batch_size: 4, epochs: 1}
"""


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("7000", "7001"), True),
        (("state: ./state", "state: ./state\nquorum: 2\nlog_level: debug"), True),
        (("epochs: 1", "epochs: 2"), False),
        (("[a, b]", "[b, a]"), False),
        (("churn", "other"), False),
        (("state: ./state", "state: ./state\nalignment: hmac"), False),
    ],
    ids=str,
)
def test_a_run_does_not_go_on_under_other_settings(tmp_path, change, same):
    prints = []
    for text in (CONFIG, CONFIG.replace(*change)):
        (tmp_path / "a.yaml").write_text(text)
        prints.append(fingerprint(load_config(tmp_path / "a.yaml", CoordinatorConfig)))
    assert (prints[0] == prints[1]) == same
