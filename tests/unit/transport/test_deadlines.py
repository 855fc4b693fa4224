"""Callers that are silent are not waited for."""

import asyncio
from types import SimpleNamespace

import pytest

from laser_vfl.client.alignment import ring
from laser_vfl.client.peers import peer_mesh as links
from laser_vfl.client.serving import representation_service as representing
from laser_vfl.coordinator.api import coordinator_service as service
from laser_vfl.core.errors import ContractError
from laser_vfl.transport.deadlines import FIRST_S, in_time


async def soon():
    await asyncio.sleep(0)
    return "a message"


async def never():
    await asyncio.Event().wait()


def test_what_comes_in_time_is_what_came():
    assert asyncio.run(in_time(soon())) == "a message"


def test_what_does_not_come_is_an_error():
    with pytest.raises(ContractError, match=r"nothing came for 0\.01 s"):
        asyncio.run(in_time(never(), 0.01))


def test_a_cancellation_stays_one():
    async def play():
        task = asyncio.create_task(in_time(never()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(play())


class Silent:
    """A caller that says nothing, in either form of reading."""

    read = staticmethod(never)

    def __aiter__(self):
        return self

    __anext__ = staticmethod(never)


@pytest.mark.parametrize(
    ("module", "call"),
    [
        (links, lambda: links.PeerStreamServicer().serve(None, Silent())),
        (
            representing,
            lambda: representing.RepresentationService("bank", *[None] * 5).serve(None, Silent()),
        ),
        (ring, lambda: ring.RingServicer().serve(None, Silent())),
        (service, lambda: _coordinator().SubmitIds(Silent(), None)),
        (service, lambda: _coordinator().Session(Silent(), None)),
    ],
    ids=["Exchange", "Represent", "HandOn", "SubmitIds", "Session"],
)
def test_a_call_that_does_not_begin_is_ended(module, call, monkeypatch):
    def hasty(message, seconds=FIRST_S):
        assert seconds == FIRST_S
        return in_time(message, 0.01)

    monkeypatch.setattr(module, "in_time", hasty)

    async def play():
        async with asyncio.timeout(5):
            await call()

    with pytest.raises(ContractError, match="nothing came"):
        asyncio.run(play())


def _coordinator():
    return service.CoordinatorService(
        "churn", None, SimpleNamespace(alignments=None, registry=None), None
    )
