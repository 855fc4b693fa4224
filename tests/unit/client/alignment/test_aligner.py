"""An alignment at its members: the same as one of plain ids, and whoever spoils it is named."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laser_vfl.core.alignment import align
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import (
    LimitExceeded,
    TrainingStopped,
)
from tests.support.data.client_people import digests_at, listed
from tests.support.fakes.local_alignment import IDS, Client, LocalAlignment, lists_of, tables
from tests.support.fakes.local_ring import ROSTER, play


async def all_align(wire, hall, directory, ids_by_client, known=None, scheme="ecdh"):
    known = known or {}
    outcomes = await asyncio.gather(
        *(
            Client(wire, name, directory).align(hall, lists_of(name, ids), known.get(name), scheme)
            for name, ids in ids_by_client.items()
        )
    )
    return dict(zip(ids_by_client, outcomes, strict=True))


def people_by_name(pseudonyms, name, ids):
    """Return who is called what, by the client's own knowledge of its people."""
    by_digest = {
        digest.tobytes(): id for id, digest in zip(ids, digests_at(name, ids), strict=True)
    }
    return {
        (int(group), int(place)): by_digest[digest.tobytes()]
        for (group, place), digest in zip(pseudonyms.names, pseudonyms.digests, strict=True)
    }


def check_oracle(aligned, ids_by_client):
    """Compare with an alignment of the ids themselves, each list in its owner's order."""
    for table in ("train", "test"):
        lists = {name: listed(name, ids[table]) for name, ids in ids_by_client.items()}
        plain = align([digests_at("anyone", people.ids) for people in lists.values()])
        for (name, people), told in zip(lists.items(), plain, strict=True):
            found = aligned[name].tables[table]
            assert found.groups == told.groups
            assert {g: rows.tolist() for g, rows in found.rows.items()} == {
                g: people.rows[places].tolist() for g, places in told.rows.items()
            }


def check_names(aligned, ids_by_client):
    """The same name is the same person wherever it is known."""
    people = {}
    for name, ids in ids_by_client.items():
        called = people_by_name(aligned[name].pseudonyms, name, ids)
        assert sorted(called.values()) == sorted(ids)
        for key, id in called.items():
            assert people.setdefault(key, id) == id
    assert len(set(people.values())) == len(people)


def test_points_give_the_same_groups_as_plain_ids(wire, tmp_path):
    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        aligned = await all_align(wire, hall, tmp_path, IDS)
        check_oracle(aligned, IDS)
        check_names(aligned, {name: ids["serve"] for name, ids in IDS.items()})
        assert not hall.refusals
        assert {a.pseudonyms.members for a in aligned.values()} == {tuple(IDS)}
        assert len({a.pseudonyms.scalar for a in aligned.values()}) == 3

    play(scenario)


def test_shared_digests_give_the_same_groups_as_plain_ids(wire, tmp_path):
    def shared(ids):
        people = listed("anyone", ids)
        return replace(people, digests=digests_at("anyone", people.ids))

    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        lists = {name: {t: shared(ids[t]) for t in ids} for name, ids in IDS.items()}
        aligned = await asyncio.gather(
            *(Client(wire, name, tmp_path).align(hall, lists[name], scheme="hmac") for name in IDS)
        )
        for (name, ids), found in zip(IDS.items(), aligned, strict=True):
            assert found.pseudonyms is None
            assert set(found.tables) == {"train", "test"}
            assert found.tables["train"].num_rows == len(ids["train"]), name
        assert not hall.commitments

    play(scenario)


overlaps = st.lists(
    st.lists(st.integers(0, 6).map("person-{}".format), unique=True, max_size=5),
    min_size=1,
    max_size=4,
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(overlaps)
def test_random_overlaps_give_the_same_groups_as_plain_ids(wire, tmp_path_factory, overlaps):
    ids = {
        name: {"train": people[1:], "test": people[:1], "serve": people}
        for name, people in zip(ROSTER, overlaps, strict=False)
    }

    async def scenario(threads):
        hall = LocalAlignment(tuple(ids))
        aligned = await all_align(wire, hall, tmp_path_factory.mktemp("ledgers"), ids)
        check_oracle(aligned, ids)
        check_names(aligned, {name: mine["serve"] for name, mine in ids.items()})

    play(scenario)


def test_nothing_that_is_submitted_is_known_to_a_member_before(wire, tmp_path):
    """What reaches the coordinator is under every scalar, not under those of some."""

    async def scenario(threads):
        hall = LocalAlignment(tuple(IDS))
        aligned = await all_align(wire, hall, tmp_path, IDS)
        submitted = {row.tobytes() for rows in hall.lists.values() for row in rows}
        for name, found in aligned.items():
            own = {digest.tobytes() for digest in found.pseudonyms.digests}
            assert not own & submitted, name
            assert {point.tobytes() for point in found.pseudonyms.points} <= submitted

    play(scenario)


NEWCOMERS = {"bank": ["eve", "gus"], "shop": [], "club": ["gus", "bob"]}


def test_unaligned_ids_are_aligned_with_those_who_were_there_and_these_are_not_blinded_again(
    wire, tmp_path
):
    async def scenario(threads):
        first = await all_align(wire, LocalAlignment(tuple(IDS)), tmp_path, IDS)
        hall = LocalAlignment(
            tuple(IDS), id="alignment-2", run="alignment-1", purpose=AlignmentPurpose.UNALIGNED_IDS
        )
        known = {name: found.pseudonyms for name, found in first.items()}
        new = {name: {"serve": ids} for name, ids in NEWCOMERS.items()}
        second = await all_align(wire, hall, tmp_path, new, known)
        everybody = {name: [*IDS[name]["serve"], *NEWCOMERS[name]] for name in IDS}
        check_names(second, everybody)
        sizes = {name: hall.commitments[name].num_points for name in IDS}
        assert sizes == {"bank": 2, "shop": 0, "club": 2}
        plain = align([digests_at("anyone", listed(n, ids).ids) for n, ids in everybody.items()])
        for found, told in zip(second.values(), plain, strict=True):
            assert found.pseudonyms.groups == told.groups
            assert (found.pseudonyms.id, found.pseudonyms.run) == ("alignment-2", "alignment-1")
        assert {n: f.pseudonyms.scalar for n, f in second.items()} == {
            n: pseudonyms.scalar for n, pseudonyms in known.items()
        }

    play(scenario)


AGAIN = {
    "bank": tables(["ada", "bob", "cyd"], ["dan"]),
    "shop": tables(["cyd", "hal"], ["eve"], "ada"),
    "club": tables(["zoe", "dan"], ["ada"]),
}
"""The tables at the next run: some have come, some have left or moved to another table."""


def next_run(number=2, run="alignment-1"):
    return LocalAlignment(tuple(IDS), id=f"alignment-{number}", run=run)


def test_the_next_run_blinds_those_alone_who_were_not_aligned_before(wire, tmp_path):
    async def scenario(threads):
        first = await all_align(wire, LocalAlignment(tuple(IDS)), tmp_path, IDS)
        known = {name: found.pseudonyms for name, found in first.items()}
        hall = next_run()
        second = await all_align(wire, hall, tmp_path, AGAIN, known)
        assert {n: hall.commitments[n].num_points for n in IDS} == {"bank": 0, "shop": 1, "club": 1}
        check_oracle(second, AGAIN)
        check_names(second, {name: sorted({*ids["serve"]}) for name, ids in AGAIN.items()})
        for name, found in second.items():
            named = found.pseudonyms
            assert (named.id, named.run, named.domain) == (
                "alignment-2",
                "alignment-2",
                "alignment-1",
            )
            assert named.scalar == known[name].scalar

        # The run after that knows those who came in the second, under the scalars of the first.
        known = {name: found.pseudonyms for name, found in second.items()}
        hall = next_run(3, "alignment-2")
        third = await all_align(wire, hall, tmp_path, AGAIN, known)
        assert {hall.commitments[name].num_points for name in IDS} == {0}
        check_oracle(third, AGAIN)

    play(scenario)


def test_an_alignment_that_is_based_on_another_is_the_same_as_a_new_one(wire, tmp_path):
    async def scenario(threads):
        first = await all_align(wire, LocalAlignment(tuple(IDS)), tmp_path, IDS)
        known = {name: found.pseudonyms for name, found in first.items()}
        based = await all_align(wire, next_run(), tmp_path, AGAIN, known)
        anew = await all_align(wire, LocalAlignment(tuple(IDS)), tmp_path, AGAIN)
        for name in IDS:
            for table in ("train", "test", "serve"):
                found, expected = based[name].tables[table], anew[name].tables[table]
                assert found.groups == expected.groups
                assert {g: r.tolist() for g, r in found.rows.items()} == {
                    g: r.tolist() for g, r in expected.rows.items()
                }

    play(scenario)


def test_who_comes_again_under_another_digest_comes_once(wire, tmp_path):
    async def scenario(threads):
        names = ("bank", "shop")
        ids = {name: IDS[name] for name in names}
        first = await all_align(wire, LocalAlignment(names), tmp_path, ids)
        known = {name: found.pseudonyms for name, found in first.items()}
        digests = known["bank"].digests.copy()
        digests[:] = 255 - digests  # the bank has got another key since
        known["bank"].digests = digests
        hall = LocalAlignment(
            names, id="alignment-2", run="alignment-1", purpose=AlignmentPurpose.UNALIGNED_IDS
        )
        new = {"bank": {"serve": ["ada"]}, "shop": {"serve": []}}
        second = await all_align(wire, hall, tmp_path, new, known)
        pseudonyms = second["bank"].pseudonyms
        assert len(pseudonyms.digests) == len(pseudonyms.points) == len(ids["bank"]["serve"])
        assert not pseudonyms.is_new(digests_at("bank", ["ada"])).any()

    play(scenario)


def test_every_alignment_counts_and_one_too_many_does_not_begin(wire, tmp_path):
    async def scenario(threads):
        client = Client(wire, "bank", tmp_path, per_day=2)
        for number in range(2):
            hall = LocalAlignment(("bank",), id=f"alignment-{number}")
            await client.align(hall, lists_of("bank", IDS["bank"]))
        hall = LocalAlignment(("bank",), id="alignment-3")
        with pytest.raises(LimitExceeded):
            await Client(wire, "bank", tmp_path, per_day=2).align(
                hall, lists_of("bank", IDS["bank"])
            )
        assert not hall.commitments

    play(scenario)


def test_what_cannot_be_counted_sends_no_list(wire, tmp_path):
    async def scenario(threads):
        directory = tmp_path / "gone"
        directory.mkdir()
        client = Client(wire, "bank", directory)
        directory.rmdir()
        hall = LocalAlignment(("bank",))
        with pytest.raises(TrainingStopped):
            await client.align(hall, lists_of("bank", IDS["bank"]))
        assert not hall.lists

    play(scenario)


def test_the_audit_log_says_with_whom_and_how_many(wire, tmp_path):
    async def scenario(threads):
        await all_align(wire, LocalAlignment(tuple(IDS)), tmp_path, IDS)

    play(scenario)
    [line] = map(json.loads, (tmp_path / "club.jsonl").read_text().splitlines())
    assert (line["event"], line["outcome"]) == ("alignment", "aligned")
    assert line["members"] == list(IDS)
    assert line["num_rows"] == {"train": 1, "test": 0, "serve": 2}
    assert "zoe" not in json.dumps(line)


def test_the_audit_log_has_alignments_that_failed(wire, tmp_path):
    async def scenario(threads):
        client = Client(wire, "bank", tmp_path, per_day=1)
        client.ledger.note()
        with pytest.raises(LimitExceeded):
            await client.align(LocalAlignment(tuple(IDS)), lists_of("bank", IDS["bank"]))

    play(scenario)
    [line] = map(json.loads, (tmp_path / "bank.jsonl").read_text().splitlines())
    assert line["outcome"] == "failed"
    assert "alignments within a day" in line["reason"]
