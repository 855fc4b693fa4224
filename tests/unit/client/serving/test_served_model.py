"""Names change while all go on: by the older ones until everybody has heard of the new."""

from types import SimpleNamespace

import pytest

from laser_vfl.client.serving.models import served_model as served_model_module
from laser_vfl.client.serving.models.served_model import SPREAD_S, ServedModel
from tests.support.data.client_people import ROSTER, digests_at, pseudonym_tables

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
    monkeypatch.setattr(served_model_module, "time", clock)
    return clock


def served_by(pseudonyms):
    model = SimpleNamespace(roster=ROSTER[:2])
    return ServedModel(
        model, row_index=None, representation=None, head=None, pseudonyms=pseudonyms, used_at=0
    )


def at(served, *ids):
    return served.named_to(["shop"], digests_at("bank", ids))["shop"]


def test_without_an_alignment_people_are_named_by_digest():
    asked = digests_at("bank", ["ada", "bob"])
    named = served_by(None).named_to(["shop"], asked)["shop"]
    assert (named.names, named.alignment, named.at) == (asked.tobytes(), "", None)


def test_people_are_named_by_the_alignment(clock):
    pseudonyms, _ = pseudonym_tables(BEFORE, id="first")
    named = at(served_by(pseudonyms), "bob", "ada")
    assert named.alignment == "first"
    assert named.at.tolist() == [1]
    assert named.names == pseudonyms.names_for(digests_at("bank", ["ada"]), 1)[0]


def test_new_names_are_used_once_all_have_had_the_time_to_hear_of_them(clock):
    older, _ = pseudonym_tables(BEFORE, id="first")
    newer, _ = pseudonym_tables(AFTER, id="second")
    served = served_by(older)
    served.rename(newer)
    for passed_s, alignment, places in (
        (0.0, "first", [0]),
        (SPREAD_S - 0.1, "first", [0]),
        (0.2, "second", [0, 1, 2]),
        (1e6, "second", [0, 1, 2]),
    ):
        clock.now += passed_s
        named = at(served, "ada", "bob", "dan")
        assert (named.alignment, named.at.tolist()) == (alignment, places)


def test_one_question_names_people_to_all_peers_by_the_same_alignment(clock):
    """Time passes while peers are gone through; what some know and some do not is not mixed."""
    older, _ = pseudonym_tables(BEFORE, id="first")
    newer, _ = pseudonym_tables(AFTER, id="second")
    served = served_by(older)
    served.rename(newer)

    def peers():
        for name in ROSTER[:2]:
            yield name
            clock.now += SPREAD_S

    named = served.named_to(peers(), digests_at("bank", ["ada", "bob", "dan"]))
    assert [one.alignment for one in named.values()] == ["first", "first"]


def test_the_first_names_are_used_at_once(clock):
    pseudonyms, _ = pseudonym_tables(BEFORE, id="first")
    served = served_by(None)
    served.rename(pseudonyms)
    assert at(served, "ada").alignment == "first"


def test_peers_may_ask_by_the_names_of_today_and_of_yesterday(clock):
    older, newer, newest = (
        pseudonym_tables(BEFORE, id=id)[1] for id in ("first", "second", "third")
    )
    served = served_by(older)
    assert served.pseudonyms_of("first") is older
    assert served.pseudonyms_of("second") is None
    served.rename(newer)
    assert served.pseudonyms_of("first") is older
    assert served.pseudonyms_of("second") is newer
    clock.now += 10 * SPREAD_S
    assert served.pseudonyms_of("first") is older
    served.rename(newest)
    assert served.pseudonyms_of("first") is None
    assert served.pseudonyms_of("second") is newer
    assert served.pseudonyms_of("third") is newest
    assert served.pseudonyms_of("") is None


def test_an_edition_without_names_knows_none():
    assert served_by(None).pseudonyms_of("") is None
    assert served_by(None).pseudonyms_of("first") is None
