"""What a coordinator demands is checked by the client before it acts on it."""

import asyncio

import pytest

from laser_vfl.client.session import coordinator_terms as terms
from laser_vfl.client.session.coordinator_session import ClientInfo, Session
from laser_vfl.client.session.member_view import check_view
from laser_vfl.coordinator.api.directive_messages import settings_message
from laser_vfl.core.errors import ContractError
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.protocol import MAX_TENSOR_BYTES
from laser_vfl.v1 import coordinator_pb2 as pb

SETTINGS = TrainingSettings(representation_dim=8, batch_size=16, epochs=2)
LARGEST = TrainingSettings(representation_dim=4096, batch_size=4096, epochs=1)
ROSTER = ["bank", "shop"]

UNFIT = {
    "no width": {"representation_dim": 0},
    "a width beyond any": {"representation_dim": 2**32 - 1},
    "a batch beyond any": {"batch_size": 2**32 - 1},
    "a frame beyond any": {"representation_dim": 65_536, "batch_size": 1_000_000},
    "a frame just too large": {"representation_dim": 4096, "batch_size": 4097},
    "a masked frame too large": {
        "representation_dim": 4096,
        "batch_size": 4096,
        "masked_gradients": True,
    },
    "no epochs": {"epochs": 0},
    "a seed beyond any": {"seed": 2**63},
    "no such method": {"method": "torch.hub:load"},
    "masks that the method lacks": {"method": "local", "masked_gradients": True},
    "no such batching": {"batching": "x" * 10_000},
    "no such precision": {"wire_precision": ""},
    "no step timeout": {"step_timeout_s": 0.0},
    "a step timeout that is no number": {"step_timeout_s": float("nan")},
    "an infinite norm": {"max_norm": float("inf")},
    "checkpoints beyond any": {"checkpoint_every": 2**64 - 1},
}


def told(**changes):
    message = settings_message(SETTINGS)
    for key, value in changes.items():
        setattr(message, key, value)
    return message


def test_settings_that_are_allowed_are_read_as_they_are():
    for settings in (SETTINGS, LARGEST):
        assert terms.read_settings(settings_message(settings), 2) == settings
    assert LARGEST.batch_size * LARGEST.representation_dim * 4 == MAX_TENSOR_BYTES


@pytest.mark.parametrize("name", UNFIT)
def test_settings_that_no_coordinator_of_ours_has_are_refused(name):
    with pytest.raises(ContractError, match="training settings cannot be used") as refused:
        terms.read_settings(told(**UNFIT[name]), 2)
    assert len(str(refused.value)) < 500


def test_a_method_is_refused_that_does_not_work_with_so_many():
    combined = told(method="combinatorial")
    assert terms.read_settings(combined, 10).method == "combinatorial"
    with pytest.raises(ContractError, match="method"):
        terms.read_settings(combined, 11)


@pytest.mark.parametrize(
    "roster",
    [
        [],
        ["shop"],
        ["bank", "bank"],
        ["bank", ""],
        ["bank", "../shop"],
        ["bank", "x" * 1000],
        ["bank", *(f"c{i}" for i in range(64))],
    ],
)
def test_a_roster_that_is_none_is_refused(roster):
    with pytest.raises(ContractError, match="roster"):
        terms.read_roster(roster, "bank")
    assert terms.read_roster(ROSTER, "bank") == ("bank", "shop")


def test_ids_are_compared_in_one_of_two_ways():
    assert [terms.read_scheme(text) for text in ("ecdh", "hmac")] == ["ecdh", "hmac"]
    with pytest.raises(ContractError):
        terms.read_scheme("")


@pytest.mark.parametrize(
    "view",
    [
        pb.View(run="../x", seed=1),
        pb.View(run="0" * 32, seed=2**63),
        pb.View(run="0" * 32, heads=["club"]),
        pb.View(run="0" * 32, members=[pb.ViewMember(client="club")]),
    ],
)
def test_a_view_of_what_there_cannot_be_is_refused(view):
    with pytest.raises(ContractError):
        check_view(view, ROSTER)
    check_view(pb.View(run="0" * 32, seed=2**63 - 1, heads=ROSTER), ROSTER)


def test_a_client_registers_with_nothing_that_it_could_not_use(monkeypatch):
    """What it is told of is checked as a whole: the number it gets is not taken over either."""
    replies = [
        pb.RegisterResponse(incarnation=3, roster=ROSTER, training=told(), alignment="ecdh"),
        *(
            pb.RegisterResponse(incarnation=9, roster=ROSTER, training=told(**changes))
            for changes in UNFIT.values()
        ),
        pb.RegisterResponse(incarnation=9, roster=["shop"], training=told(), alignment="ecdh"),
        pb.RegisterResponse(incarnation=9, roster=ROSTER, training=told(), alignment="plain"),
    ]

    class Stub:
        async def Register(self, request, **_):
            return replies.pop(0)

    monkeypatch.setattr(Session, "_stub", Stub())
    session = Session(None, ClientInfo("trial", "bank", "127.0.0.1:7", True), None)

    async def scene():
        assert (await session.register(wants_run=True)).settings == SETTINGS
        while replies:
            with pytest.raises(ContractError):
                await session.register(wants_run=True)
        assert session.incarnation == 3

    asyncio.run(scene())
