"""Names of people: they mean the same person at both ends, and nobody whom the asker lacks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.client.tables.pseudonym_table import NAME, places_of
from laser_vfl.core.alignment import DIGEST_BYTES
from tests.support.data.client_people import ROSTER, digests_at, name, pseudonym_tables

BANK, SHOP, CLUB = "bank", "shop", "club"

IDS = (
    ["ada", "bob", "cyd", "dan"],
    ["dan", "eve", "ada"],
    ["eve", "fay", "ada", "gus"],
)


def group_of(pseudonyms, *clients):
    mask = sum(1 << ROSTER.index(client) for client in clients)
    return next(g for g, group in enumerate(pseudonyms.groups) if group.observed == mask)


def test_only_those_are_named_whom_the_peer_holds():
    bank, *_ = pseudonym_tables(IDS)
    asked = digests_at(BANK, ["bob", "dan", "nobody", "ada", "cyd"])
    names, at = bank.names_for(asked, ROSTER.index(SHOP))
    assert at.tolist() == [1, 3]
    assert at.dtype == np.uint32
    assert len(names) == 2 * NAME.itemsize
    names, at = bank.names_for(asked, ROSTER.index(CLUB))
    assert at.tolist() == [3]


def test_a_client_that_was_not_there_holds_nobody():
    bank, *_ = pseudonym_tables(IDS)
    names, at = bank.names_for(digests_at(BANK, IDS[0]), ROSTER.index("fund"))
    assert (names, at.tolist()) == (b"", [])


def test_a_name_is_the_group_and_the_place_and_nothing_else():
    bank, shop, _ = pseudonym_tables(IDS)
    names, _at = bank.names_for(digests_at(BANK, ["dan"]), ROSTER.index(SHOP))
    assert names == name(group_of(bank, BANK, SHOP), 0)
    assert len(names) == 12
    assert np.array_equal(shop.digests_of(names, ROSTER.index(BANK)), digests_at(SHOP, ["dan"]))


def test_a_person_may_be_named_more_than_once():
    bank, shop, _ = pseudonym_tables(IDS)
    names, at = bank.names_for(digests_at(BANK, ["ada", "dan", "ada"]), ROSTER.index(SHOP))
    assert at.tolist() == [0, 1, 2]
    found = shop.digests_of(names, ROSTER.index(BANK))
    assert np.array_equal(found, digests_at(SHOP, ["ada", "dan", "ada"]))


def test_nobody_is_told_of_people_that_it_does_not_hold():
    _bank, shop, _club = pseudonym_tables(IDS)
    with_club = group_of(shop, SHOP, CLUB)
    names = name(with_club, 0) + name(group_of(shop, BANK, SHOP), 0)
    found = shop.digests_of(names, ROSTER.index(BANK))
    assert not found[0].any()
    assert np.array_equal(found[1:], digests_at(SHOP, ["dan"]))
    assert np.array_equal(
        shop.digests_of(name(with_club, 0), ROSTER.index(CLUB)), digests_at(SHOP, ["eve"])
    )


@pytest.mark.parametrize(
    ("group", "place"),
    [
        ("of bank alone", 0),
        ("of both", 1),
        ("of both", 2**31),
        ("of both", 2**63),
        ("of both", 2**64 - 1),
        (77, 0),
        (2**32 - 1, 0),
    ],
)
def test_names_that_are_nobodys_are_zeros(group, place):
    _bank, shop, _ = pseudonym_tables(IDS)
    if group == "of bank alone":
        group = group_of(shop, BANK)
    elif group == "of both":
        group = group_of(shop, BANK, SHOP)
    found = shop.digests_of(name(group, place), ROSTER.index(BANK))
    assert found.shape == (1, DIGEST_BYTES)
    assert not found.any()


def test_nothing_asked_is_nothing_answered():
    bank, *_ = pseudonym_tables(IDS)
    assert bank.digests_of(b"", 1).shape == (0, DIGEST_BYTES)
    names, at = bank.names_for(np.empty((0, DIGEST_BYTES), np.uint8), 1)
    assert (names, len(at)) == (b"", 0)


def test_who_has_no_name_yet_is_new():
    bank, *_ = pseudonym_tables(IDS)
    asked = digests_at(BANK, ["ada", "zoe", "dan", "eve"])
    assert bank.is_new(asked).tolist() == [False, True, False, True]
    (empty,) = pseudonym_tables([[]])
    assert empty.is_new(asked).all()


def test_the_last_client_that_a_federation_can_have_is_known_too():
    pseudonyms, *_ = pseudonym_tables(IDS)
    pseudonyms._masks[:] = np.uint64(1) << np.uint64(63)
    _names, at = pseudonyms.names_for(digests_at(BANK, ["ada"]), 63)
    assert at.tolist() == [0]
    assert pseudonyms.names_for(digests_at(BANK, ["ada"]), 62)[0] == b""


people = st.lists(st.integers(0, 12).map("person-{}".format), unique=True, max_size=10)


@settings(max_examples=30)
@given(st.lists(people, min_size=2, max_size=4))
def test_names_mean_the_same_person_at_both_ends(ids_by_client):
    everybody = sorted({id for ids in ids_by_client for id in ids})
    found = pseudonym_tables(ids_by_client)
    for k, asker in enumerate(found):
        for j, peer in enumerate(found):
            if j == k:
                continue
            names, at = asker.names_for(digests_at(ROSTER[k], everybody), j)
            both = set(ids_by_client[k]) & set(ids_by_client[j])
            named = [everybody[place] for place in at]
            assert named == [id for id in everybody if id in both]
            assert np.array_equal(peer.digests_of(names, k), digests_at(ROSTER[j], named))


@settings(max_examples=20)
@given(st.lists(people, min_size=1, max_size=4))
def test_places_are_found_again_in_names(ids_by_client):
    for pseudonyms in pseudonym_tables(ids_by_client):
        found = places_of(pseudonyms.names, len(pseudonyms.groups))
        mine = {g: rows.tolist() for g, rows in pseudonyms._places.items() if len(rows)}
        assert {g: rows.tolist() for g, rows in found.items()} == mine
