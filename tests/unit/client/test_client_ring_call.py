"""Calls and commitments that the coordinator passes on: what makes no sense is not followed."""

import pytest

from laser_vfl.client.ring_call import Member, Promise, read_call, read_promises
from laser_vfl.core.errors import ContractError, LimitExceeded
from laser_vfl.core.purpose import Purpose
from laser_vfl.v1 import coordinator_pb2 as pb

ROSTER = ("bank", "shop", "club")
TABLES = ("train", "serve")


def call_of(*names, id="alignment-1", run=None, purpose=pb.PURPOSE_RUN):
    members = [
        pb.AlignmentMember(client=name, incarnation=number, address=f"{name}:1")
        for number, name in enumerate(names, start=1)
    ]
    return pb.AlignmentCall(id=id, run=id if run is None else run, purpose=purpose, members=members)


def commitment(client, table, num_points=2):
    return pb.Commitment(client=client, table=table, num_points=num_points, sha256=b"\1" * 32)


def commitments(*names):
    return [
        commitment(name, table, number)
        for number, name in enumerate(names, start=1)
        for table in (pb.TABLE_TRAIN, pb.TABLE_SERVE)
    ]


def test_a_call_says_who_stands_where():
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    assert (call.id, call.run, call.purpose) == ("alignment-1", "alignment-1", Purpose.RUN)
    assert call.names == ROSTER
    assert call.before("shop") == Member("bank", 1, "bank:1")
    assert call.after("shop") == Member("club", 3, "club:1")
    assert call.before("bank") == call.after("shop")
    assert call.after("club") == call.before("shop")


def test_a_list_is_handed_on_until_it_is_home():
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    names = call.names
    for at, owner in enumerate(names):
        path = [names[(at + i) % len(names)] for i in range(1, len(names) + 1)]
        assert path[-1] == owner
        assert [call.hops(owner, name) for name in path] == list(range(1, len(names) + 1))


def test_a_ring_of_two_or_of_one_is_one_too():
    call = read_call(call_of("bank", "club"), ROSTER, "club")
    assert call.before("club") == call.after("club") == Member("bank", 1, "bank:1")
    alone = read_call(call_of("shop"), ROSTER, "shop")
    assert alone.before("shop").name == alone.after("shop").name == "shop"


def test_newcomers_come_to_a_run_that_has_been():
    message = call_of(*ROSTER, run="run-1", purpose=pb.PURPOSE_NEWCOMERS)
    call = read_call(message, ROSTER, "bank")
    assert (call.id, call.run, call.purpose) == ("alignment-1", "run-1", Purpose.NEWCOMERS)


@pytest.mark.parametrize(
    "message",
    [
        pb.AlignmentCall(),
        call_of(*ROSTER, purpose=pb.PURPOSE_UNSPECIFIED),
        call_of(*ROSTER, purpose=77),
        call_of(*ROSTER, id=""),
        call_of(*ROSTER, id="../../etc"),
        call_of(*ROSTER, id="x" * 65),
        call_of(*ROSTER, run="", purpose=pb.PURPOSE_NEWCOMERS),
        call_of(*ROSTER, run="a/b", purpose=pb.PURPOSE_NEWCOMERS),
        call_of(),
        call_of("bank", "club"),
        call_of("shop", "bank"),
        call_of("bank", "shop", "shop"),
        call_of("bank", "shop", "thief"),
        call_of("bank", "shop", ""),
    ],
    ids=[
        "empty",
        "no purpose",
        "purpose",
        "no id",
        "path",
        "long",
        "no run",
        "run path",
        "nobody",
        "without me",
        "order",
        "twice",
        "stranger",
        "nameless",
    ],
)
def test_a_call_that_makes_no_sense_is_refused(message):
    with pytest.raises(ContractError):
        read_call(message, ROSTER, "shop")


def test_a_call_to_somewhere_that_is_no_host_is_refused():
    message = call_of(*ROSTER)
    message.members[2].address = "unix:/run/somebody.sock"
    with pytest.raises(ContractError, match='"club" is at "unix:/run/somebody'):
        read_call(message, ROSTER, "shop")


@pytest.mark.parametrize("purpose", [pb.PURPOSE_RUN, pb.PURPOSE_DRY_RUN])
def test_only_newcomers_use_the_scalars_of_another_run(purpose):
    """Otherwise the names of a run that is served could be written over."""
    with pytest.raises(ContractError):
        read_call(call_of(*ROSTER, run="run-1", purpose=purpose), ROSTER, "shop")


def told(*those):
    message = call_of(*ROSTER)
    message.commitments.extend(those)
    return message


def test_promises_are_by_client_and_table():
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    promises = read_promises(told(*commitments(*ROSTER)), call, TABLES, 100)
    assert len(promises) == 6
    assert promises["club", "serve"] == Promise(3, b"\1" * 32)


@pytest.mark.parametrize(
    "those",
    [
        [],
        commitments("bank", "shop"),
        commitments(*ROSTER)[1:],
        [*commitments(*ROSTER), commitment("thief", pb.TABLE_TRAIN)],
        [*commitments(*ROSTER), commitment("bank", pb.TABLE_TEST)],
        [*commitments(*ROSTER), commitment("bank", pb.TABLE_UNSPECIFIED)],
        [*commitments(*ROSTER)[:-1], commitment("club", 99)],
    ],
    ids=["none", "member", "table", "stranger", "other table", "no table", "unknown table"],
)
def test_nobody_is_left_out_of_the_promises_and_nobody_added(those):
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    with pytest.raises(ContractError, match="other commitments"):
        read_promises(told(*those), call, TABLES, 100)


def test_nobody_may_bring_too_many():
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    message = told(*commitments(*ROSTER))
    assert read_promises(message, call, TABLES, 3)
    with pytest.raises(LimitExceeded, match="club brings 3 people in its train list"):
        read_promises(message, call, TABLES, 2)
