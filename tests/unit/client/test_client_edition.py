"""Names change while all go on: by the older ones until everybody has heard of the new."""

from types import SimpleNamespace

import pytest
from client_people import ROSTER, digests_at, namings

from laser_vfl.client import edition as edition_module
from laser_vfl.client.edition import SPREAD_S, Edition

BEFORE = (["ada", "bob"], ["ada", "cyd"])
AFTER = (["ada", "bob", "dan"], ["ada", "cyd", "dan", "bob"])


class Clock:
    """A time that passes when told to."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(edition_module, "time", clock)
    return clock


def edition_of(naming):
    model = SimpleNamespace(roster=ROSTER[:2])
    return Edition(model, holdings=None, representation=None, head=None, naming=naming, used_at=0)


def at(edition, *ids):
    return edition.named_to(["shop"], digests_at("bank", ids))["shop"]


def test_without_an_alignment_people_are_named_by_digest():
    asked = digests_at("bank", ["ada", "bob"])
    named = edition_of(None).named_to(["shop"], asked)["shop"]
    assert (named.names, named.alignment, named.at) == (asked.tobytes(), "", None)


def test_people_are_named_by_the_alignment(clock):
    naming, _ = namings(BEFORE, id="first")
    named = at(edition_of(naming), "bob", "ada")
    assert named.alignment == "first"
    assert named.at.tolist() == [1]
    assert named.names == naming.names_for(digests_at("bank", ["ada"]), 1)[0]


def test_new_names_are_used_once_all_have_had_the_time_to_hear_of_them(clock):
    older, _ = namings(BEFORE, id="first")
    newer, _ = namings(AFTER, id="second")
    edition = edition_of(older)
    edition.rename(newer)
    for passed_s, alignment, places in (
        (0.0, "first", [0]),
        (SPREAD_S - 0.1, "first", [0]),
        (0.2, "second", [0, 1, 2]),
        (1e6, "second", [0, 1, 2]),
    ):
        clock.now += passed_s
        named = at(edition, "ada", "bob", "dan")
        assert (named.alignment, named.at.tolist()) == (alignment, places)


def test_one_question_names_people_to_all_peers_by_the_same_alignment(clock):
    """Time passes while peers are gone through; what some know and some do not is not mixed."""
    older, _ = namings(BEFORE, id="first")
    newer, _ = namings(AFTER, id="second")
    edition = edition_of(older)
    edition.rename(newer)

    def peers():
        for name in ROSTER[:2]:
            yield name
            clock.now += SPREAD_S

    named = edition.named_to(peers(), digests_at("bank", ["ada", "bob", "dan"]))
    assert [one.alignment for one in named.values()] == ["first", "first"]


def test_the_first_names_are_used_at_once(clock):
    naming, _ = namings(BEFORE, id="first")
    edition = edition_of(None)
    edition.rename(naming)
    assert at(edition, "ada").alignment == "first"


def test_peers_may_ask_by_the_names_of_today_and_of_yesterday(clock):
    older, newer, newest = (namings(BEFORE, id=id)[1] for id in ("first", "second", "third"))
    edition = edition_of(older)
    assert edition.naming_of("first") is older
    assert edition.naming_of("second") is None
    edition.rename(newer)
    assert edition.naming_of("first") is older
    assert edition.naming_of("second") is newer
    clock.now += 10 * SPREAD_S
    assert edition.naming_of("first") is older
    edition.rename(newest)
    assert edition.naming_of("first") is None
    assert edition.naming_of("second") is newer
    assert edition.naming_of("third") is newest
    assert edition.naming_of("") is None


def test_an_edition_without_names_knows_none():
    assert edition_of(None).naming_of("") is None
    assert edition_of(None).naming_of("first") is None
