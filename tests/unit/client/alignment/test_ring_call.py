"""Calls and commitments that the coordinator passes on: what makes no sense is not followed."""

import pytest

from laser_vfl.client.alignment.ring_call import Promise, RingMember, read_call, read_promises
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import ContractError, TooManyPeople
from laser_vfl.v1 import coordinator_pb2 as pb

ROSTER = ("bank", "shop", "club")


def call_of(*names, id="alignment-1", run=None, purpose=pb.PURPOSE_RUN):
    members = [
        pb.AlignmentMember(client=name, incarnation=number, address=f"{name}:1")
        for number, name in enumerate(names, start=1)
    ]
    return pb.AlignmentCall(id=id, run=id if run is None else run, purpose=purpose, members=members)


def commitment(client, num_points=2, num_known=0):
    return pb.Commitment(
        client=client, num_points=num_points, sha256=b"\1" * 32, num_known=num_known
    )


def commitments(*names):
    return [commitment(name, number) for number, name in enumerate(names, start=1)]


def test_a_call_says_who_stands_where():
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    assert (call.id, call.run, call.purpose) == ("alignment-1", "alignment-1", AlignmentPurpose.RUN)
    assert call.names == ROSTER
    assert call.before("shop") == RingMember("bank", 1, "bank:1")
    assert call.after("shop") == RingMember("club", 3, "club:1")
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
    assert call.before("club") == call.after("club") == RingMember("bank", 1, "bank:1")
    alone = read_call(call_of("shop"), ROSTER, "shop")
    assert alone.before("shop").name == alone.after("shop").name == "shop"


def test_unaligned_ids_come_to_a_run_that_has_been():
    message = call_of(*ROSTER, run="run-1", purpose=pb.PURPOSE_NEWCOMERS)
    call = read_call(message, ROSTER, "bank")
    assert (call.id, call.run, call.purpose) == (
        "alignment-1",
        "run-1",
        AlignmentPurpose.UNALIGNED_IDS,
    )


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


def test_a_run_may_use_the_scalars_of_the_one_before():
    call = read_call(call_of(*ROSTER, run="run-1"), ROSTER, "shop")
    assert (call.id, call.run, call.is_based) == ("alignment-1", "run-1", True)
    assert not read_call(call_of(*ROSTER), ROSTER, "shop").is_based


def test_a_dry_run_uses_the_scalars_of_no_run():
    message = call_of(*ROSTER, run="run-1", purpose=pb.PURPOSE_DRY_RUN)
    with pytest.raises(ContractError):
        read_call(message, ROSTER, "shop")


def test_unaligned_ids_come_to_another_run_than_their_own():
    with pytest.raises(ContractError):
        read_call(call_of(*ROSTER, purpose=pb.PURPOSE_NEWCOMERS), ROSTER, "shop")


def told(*those):
    message = call_of(*ROSTER)
    message.commitments.extend(those)
    return message


def test_promises_are_by_client():
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    promises = read_promises(told(*commitments(*ROSTER)), call, 100)
    assert len(promises) == 3
    assert promises["club"] == Promise(3, b"\1" * 32)


@pytest.mark.parametrize(
    "those",
    [
        [],
        commitments("bank", "shop"),
        [*commitments(*ROSTER), commitment("thief")],
        [*commitments("bank", "shop"), commitment("thief")],
        [*commitments(*ROSTER), commitment("bank")],
        [*commitments("bank", "shop"), commitment("bank")],
    ],
    ids=["none", "member", "stranger", "stranger in place", "twice", "twice in place"],
)
def test_nobody_is_left_out_of_the_promises_and_nobody_added(those):
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    with pytest.raises(ContractError, match="other commitments"):
        read_promises(told(*those), call, 100)


def test_nobody_may_bring_too_many():
    call = read_call(call_of(*ROSTER), ROSTER, "shop")
    message = told(*commitments(*ROSTER))
    assert read_promises(message, call, 3)
    with pytest.raises(TooManyPeople):
        read_promises(message, call, 2)


def test_who_is_of_before_counts_too():
    based = read_call(call_of(*ROSTER, run="run-1"), ROSTER, "shop")
    message = told(*commitments("bank", "shop"), commitment("club", 2, num_known=2))
    assert read_promises(message, based, 4)["club"].num_people == 4
    with pytest.raises(TooManyPeople):
        read_promises(message, based, 3)
    with pytest.raises(ContractError, match="club brings people of before"):
        read_promises(message, read_call(call_of(*ROSTER), ROSTER, "shop"), 100)
