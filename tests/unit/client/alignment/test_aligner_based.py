"""Alignments that are based on one before: what members know of it, and what they say they do."""

import asyncio

import pytest

from laser_vfl.client.alignment.ring import Ring
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import AlignmentRefused
from laser_vfl.data import POINT_BYTES
from tests.support.data.client_people import digests_at
from tests.support.fakes.local_alignment import (
    IDS,
    Client,
    LocalAlignment,
    Seat,
    lists_of,
    num_counted,
    tables,
)
from tests.support.fakes.local_ring import play

NAMES = tuple(IDS)


def people(ids):
    """Return lists of unaligned ids by client."""
    return {name: lists_of(name, {"serve": ids.get(name, [])}) for name in NAMES}


async def all_align(wire, hall, directory, lists, known, seats=None, present=None):
    """Let all align; return what became of each."""
    clients = {name: Client(wire, name, directory) for name in NAMES}
    outcomes = await asyncio.gather(
        *(
            client.align(
                hall,
                lists[name],
                known.get(name),
                seat=(seats or {}).get(name),
                present=(present or {}).get(name, ()),
            )
            for name, client in clients.items()
        ),
        return_exceptions=True,
    )
    return dict(zip(NAMES, outcomes, strict=True))


async def aligned_once(wire, directory):
    """Return how everybody names its people after a first run."""
    lists = {name: lists_of(name, IDS[name]) for name in NAMES}
    first = await all_align(wire, LocalAlignment(NAMES), directory, lists, {})
    return {name: found.pseudonyms for name, found in first.items()}


def newcomers(number):
    return LocalAlignment(
        NAMES,
        id=f"alignment-{number}",
        run="alignment-1",
        purpose=AlignmentPurpose.UNALIGNED_IDS,
    )


def test_who_has_missed_an_outcome_of_unaligned_ids_goes_on_with_the_others(wire, tmp_path):
    async def scenario(threads):
        first = await aligned_once(wire, tmp_path)
        new = people({"bank": ["gus", "eve"]})
        second = await all_align(wire, newcomers(2), tmp_path, new, first)
        known = {name: found.pseudonyms for name, found in second.items()}
        known["shop"] = first["shop"]  # it was killed before it had written the outcome
        hall = newcomers(3)
        third = await all_align(wire, hall, tmp_path, people({}), known)
        told = {n: (c.num_points, c.num_known) for n, c in hall.commitments.items()}
        assert told == {"bank": (0, 6), "shop": (0, 4), "club": (0, 2)}
        assert {name: found.pseudonyms.groups for name, found in third.items()} == {
            name: found.pseudonyms.groups for name, found in second.items()
        }

    play(scenario)


def test_who_claims_more_people_of_before_a_run_than_it_had_is_named(wire, tmp_path):
    class Lying(Seat):
        async def commit(self, alignment, num_points, sha256, num_known=0):
            await super().commit(alignment, num_points, sha256, num_known + 5)

    async def scenario(threads):
        known = await aligned_once(wire, tmp_path)
        counted = num_counted(tmp_path, "shop")
        hall = LocalAlignment(NAMES, id="alignment-2", run="alignment-1")
        lists = {name: lists_of(name, IDS[name]) for name in NAMES}
        found = await all_align(
            wire, hall, tmp_path, lists, known, seats={"bank": Lying(hall, "bank")}
        )
        assert {peer for by, peer, *_ in hall.refusals if by != "bank"} == {"bank"}
        assert isinstance(found["shop"], AlignmentRefused)
        assert isinstance(found["club"], AlignmentRefused)
        assert num_counted(tmp_path, "shop") == counted

    play(scenario)


@pytest.mark.parametrize("purpose", [AlignmentPurpose.RUN, AlignmentPurpose.UNALIGNED_IDS])
def test_the_last_hop_cannot_pass_off_the_point_of_somebody_known_for_that_of_another(
    wire, tmp_path, monkeypatch, purpose
):
    """The bank is the last to have the shop's list, and holds a person of the shop's itself."""

    async def scenario(threads):
        known = await aligned_once(wire, tmp_path)
        counted = num_counted(tmp_path, "shop")
        [ada] = known["bank"].points_of(digests_at("bank", ["ada"]))
        hand_on = Ring._hand_on

        async def swapped(ring, owner, chunks):
            if (ring.me, owner) == ("bank", "shop"):
                size = sum([len(chunk) async for chunk in chunks])
                assert size == POINT_BYTES
                chunks = one(ada.tobytes())
            await hand_on(ring, owner, chunks)

        monkeypatch.setattr(Ring, "_hand_on", swapped)
        hall = LocalAlignment(NAMES, id="alignment-2", run="alignment-1", purpose=purpose)
        lists = people({"shop": ["hal"]})
        if purpose is AlignmentPurpose.RUN:
            ids = {**IDS, "shop": tables(["cyd", "ada", "hal"], ["dan", "eve"])}
            lists = {name: lists_of(name, ids[name]) for name in NAMES}
        present = {"shop": [known["shop"].digests]}
        found = await all_align(wire, hall, tmp_path, lists, known, present=present)
        [(by, peer, reason, unreachable)] = hall.refusals
        assert (by, peer, unreachable) == ("shop", "bank", False)
        assert reason.isprintable()
        assert all(isinstance(end, AlignmentRefused) for end in found.values())
        assert num_counted(tmp_path, "shop") == counted

    play(scenario)


async def one(chunk):
    yield chunk
