"""The coordinator's RPCs, called without a network."""

import asyncio
import time

import pytest

from laser_vfl.client.waiting_times import WaitingTimes
from laser_vfl.coordinator.api.coordinator_service import (
    ADDRESSES_AT_ONCE,
    ADDRESSES_PER_S,
    HEARTBEATS_AT_ONCE,
    CoordinatorService,
)
from laser_vfl.coordinator.api.directive_messages import status_message
from laser_vfl.core.errors import (
    ContractError,
    IdentityError,
    LimitExceeded,
    NotRegistered,
)
from laser_vfl.core.release import __version__
from laser_vfl.core.token_bucket import Bucket
from laser_vfl.security.access import ACCESS, calling_as
from laser_vfl.security.identity import client_of
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.fakes.coordinator_calls import SETTINGS, Caller, NoMemory, play_out
from tests.support.fakes.simulated_federation import SEED, Play, started


def book(directive):
    return [(entry.client, entry.address) for entry in directive.addresses]


def test_addresses_are_pushed_when_they_change():
    async def scene(service, a, b):
        await a.register()
        a.open()
        first = await a.heard.get()
        assert book(first) == [("a", "a:1")]
        assert (first.gathering.wanted, first.gathering.waiting_for) == (False, [])
        await b.register()
        b.open()
        assert (
            book(await a.heard.get()) == book(await b.heard.get()) == [("a", "a:1"), ("b", "b:1")]
        )
        await b.register(address="b:2")
        assert book(await a.heard.get()) == [("a", "a:1"), ("b", "b:2")]
        a.beat()
        await b.hang_up()
        assert book(await a.heard.get()) == [("a", "a:1")]
        assert a.heard.empty()
        await a.hang_up()

    play_out(scene, "a", "b")


def test_retrain_is_told_to_all_and_its_seed_goes_into_the_view():
    async def scene(service, a, b):
        await a.register()
        a.open()
        await a.heard.get()
        answer = await service.Retrain(pb.RetrainRequest(seed=0), None)
        assert (answer.seed, answer.waiting_for) == (0, ["b"])
        answer = await service.Retrain(pb.RetrainRequest(), None)
        assert answer.seed == 1001
        assert (await a.heard.get()).gathering.wanted
        await b.register()
        b.open(prepared=True)
        a.beat(prepared=True)
        assert await asyncio.gather(a.take_part(), b.take_part()) == ["run-1", "run-1"]
        await a.fetch("run-1")
        for caller in (a, b):
            caller.beat(pb.CLIENT_STATE_READY, run="run-1")
        directive = await a.hear("training")
        view = directive.training.view
        assert view.seed == 1001
        assert [member.client for member in view.members] == view.heads == ["a", "b"]
        assert book(directive) == [("a", "a:1"), ("b", "b:1")]

    play_out(scene, "a", "b")


def test_retrain_refuses_a_seed_out_of_range():
    async def scene(service, a):
        with pytest.raises(ContractError, match="expected a seed"):
            await service.Retrain(pb.RetrainRequest(seed=2**63), None)

    play_out(scene, "a")


def test_status_says_everything():
    async def scene(service, a, b):
        await a.register(wants_run=True)
        a.open(model_run="run-0", num_steps=4)
        await a.heard.get()
        status = await service.GetStatus(pb.GetStatusRequest(), None)
        assert (status.federation, status.release, status.seed) == ("churn", __version__, SEED)
        assert (status.wanted, status.waiting_for) == (True, ["a", "b"])
        first, second = status.clients
        assert (first.client, first.up, first.address) == ("a", True, "a:1")
        assert (first.activity, first.model_run, first.num_steps) == ("gathering", "run-0", 4)
        assert (second.client, second.up, second.activity) == ("b", False, "")

    play_out(scene, "a", "b")


def test_status_says_who_went_and_why():
    play = started("a", "b")
    play.federation.gone(play.clients["b"], "the disk is full")
    play.live(2, a=4)
    told = status_message("churn", SETTINGS, {}, play.federation.status(play.now))
    [departure] = told.departures
    assert (departure.client, departure.generation) == ("b", 2)
    assert departure.reason == "the disk is full"


def test_an_old_session_hears_nothing_of_the_renewed_one():
    async def scene(service, a):
        await a.register(wants_run=True, has_head=False)
        session = a.open()
        await a.heard.get()
        a.beat(prepared=True)
        assert (await a.heard.get()).HasField("stopped")
        old = a.incarnation
        await a.register(has_head=False)
        assert a.incarnation > old
        new = Caller(service, "a")
        new.incarnation = a.incarnation
        new.open()
        assert book(await new.heard.get()) == [("a", "a:1")]
        a.incarnation = old
        a.beat()
        with pytest.raises(NotRegistered):
            await session
        assert a.heard.empty()
        new.beat()
        await new.hang_up()

    play_out(scene, "a")


@pytest.mark.parametrize(
    "address",
    [
        "x" * 301,
        "a:1\n",
        "",
        "somewhere",
        "unix:/run/other.sock",
        "unix:7000",
        "DNS:7000",
        "dns://other/bank:7000",
        "ipv4:10.0.0.1:7000",
        "bank:70000",
        "[::1%\N{SNOWMAN}]:7000",
    ],
)
def test_an_address_that_peers_should_not_dial_is_refused(address):
    async def scene(service, a):
        with pytest.raises(ContractError, match="cannot be an address"):
            await a.register(address=address)

    play_out(scene, "a")


@pytest.mark.parametrize("address", ["bank.example:7000", "10.0.0.1:7000", "[::1]:7000"])
def test_an_address_is_a_host_and_a_port(address):
    async def scene(service, a):
        await a.register(address=address)
        a.open()
        assert book(await a.heard.get()) == [("a", address)]

    play_out(scene, "a")


@pytest.mark.parametrize("nonce", ["x" * 301, "\x1b[2J"])
def test_a_nonce_is_short(nonce):
    async def scene(service, a):
        with pytest.raises(ContractError, match="cannot be a nonce"):
            await a.register(nonce=nonce)
        assert not service._federation.registry

    play_out(scene, "a")


def test_nobody_waits_for_more_clients_than_there_are():
    async def scene(service, a, b):
        await a.register()
        session = a.open(waiting_for=["b"] * 3)
        with pytest.raises(ContractError, match="says too much"):
            await session

    play_out(scene, "a", "b")


def test_a_model_run_that_nobody_should_see_is_refused():
    async def scene(service, a):
        await a.register()
        session = a.open(model_run="\x1b[2J")
        with pytest.raises(ContractError, match="cannot be the id of a run"):
            await session

    play_out(scene, "a")


@pytest.mark.parametrize("scheme", ["ecdh", "hmac"])
def test_a_client_is_told_how_ids_are_compared(scheme):
    federation = Play("a", scheme=scheme).federation
    service = CoordinatorService("churn", SETTINGS, federation, NoMemory())
    request = pb.RegisterRequest(
        federation="churn",
        protocol_version=PROTOCOL_VERSION,
        client="a",
        nonce="n",
        address="a:1",
    )

    async def answer():
        return await service.Register(request, Caller(service, "a"))

    assert asyncio.run(answer()).alignment == scheme


def greet(service, client, federation="churn", version=PROTOCOL_VERSION):
    request = pb.GreetRequest(
        federation=federation, client=client, protocol_version=version, release="9.9"
    )
    return service.Greet(request, None)


def test_a_greeting_tells_a_client_of_the_roster_where_the_others_are():
    async def scene(service, a, b):
        await b.register()
        b.open()
        await b.heard.get()
        found = await greet(service, "a")
        assert (found.federation, found.release) == ("churn", __version__)
        assert found.protocol_version == PROTOCOL_VERSION
        assert abs(found.time - time.time()) < 10
        assert found.on_roster
        assert not found.problem
        assert book(found) == [("b", "b:1")]
        status = await service.GetStatus(pb.GetStatusRequest(), None)
        assert not status.clients[0].up, "a greeting registers nobody"
        await b.hang_up()

    play_out(scene, "a", "b")


@pytest.mark.parametrize(
    ("keys", "on_roster", "said"),
    [
        ({"client": "c"}, False, '"c" is not on the roster'),
        ({"client": "a", "federation": "other"}, True, 'this federation is "churn", not "other"'),
        ({"client": "a", "version": 1}, True, 'the client ("9.9") speaks 1'),
        ({"client": ""}, False, ""),
    ],
)
def test_a_greeting_says_what_is_wrong_and_tells_others_no_addresses(keys, on_roster, said):
    async def scene(service, a, b):
        await b.register()
        b.open()
        await b.heard.get()
        found = await greet(service, **keys)
        assert found.on_roster == on_roster
        assert said in found.problem
        assert bool(found.problem) == bool(said)
        assert book(found) == []
        await b.hang_up()

    play_out(scene, "a", "b")


def test_nobody_greets_in_anothers_name():
    async def scene(service, a, b):
        with calling_as(client_of("churn", "a")), pytest.raises(IdentityError):
            await greet(service, "b")

    play_out(scene, "a", "b")


def test_heartbeats_without_end_end_the_session():
    """The others go on. What is said last would otherwise be heard long after."""

    async def scene(service, a, b):
        heard = []
        service._hear = lambda registration, beat: heard.append(registration.client)
        for caller in (a, b):
            await caller.register()
        a.open()
        for _ in range(1000):
            a.beat()
        b.open()
        b.beat()
        await asyncio.sleep(0.3)
        assert heard.count("b") == 2
        assert HEARTBEATS_AT_ONCE <= heard.count("a") < HEARTBEATS_AT_ONCE + 20
        with pytest.raises(LimitExceeded, match="too many heartbeats"):
            await a.hang_up()
        await service.settle()

    play_out(scene, "a", "b")


def test_changes_are_told_together():
    """Many changes in a moment are a few directives, and the last one is told."""

    async def scene(service, a, b):
        await a.register()
        a.open()
        await b.register()
        b.open()
        while len(book(await a.heard.get())) < 2:
            pass
        await asyncio.gather(*(b.register(address=f"b:{port}") for port in range(2, 11)))
        told = [book(await a.heard.get())]
        while told[-1][1] != ("b", "b:10"):
            told.append(book(await a.heard.get()))
        assert len(told) <= 3

    play_out(scene, "a", "b")


def test_who_is_restarted_elsewhere_may_come_and_who_moves_without_end_may_not():
    async def scene(service, a):
        for port in range(ADDRESSES_AT_ONCE):
            await a.register(address=f"a:{port}")
        with pytest.raises(LimitExceeded, match="too many addresses") as refused:
            await a.register(address="a:99")
        assert 0 < refused.value.retry_after_s <= 1 / ADDRESSES_PER_S
        await a.register(address=f"a:{ADDRESSES_AT_ONCE - 1}")

    play_out(scene, "a")


def test_an_honest_client_never_comes_back_too_often():
    """Not when the network is cut and mended all the time, for an hour."""
    times = WaitingTimes()
    for call in ("Register", "Session"):
        rate = ACCESS[f"/laser_vfl.v1.Coordinator/{call}"].rate
        bucket, now = Bucket(rate.per_s, burst=rate.burst), 0.0
        while now < 3600:
            assert not bucket.wait_s(now)
            bucket.take(1)
            now += times.retry_s
