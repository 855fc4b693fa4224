"""The port for peers, bound anew when a run needs other limits."""

import asyncio
from types import SimpleNamespace

import pytest

from laser_vfl.client.peers import peer_server as module
from laser_vfl.client.peers.peer_server import PeerServer
from laser_vfl.core.errors import AddressError
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.security.credentials import Credentials

SMALL = TrainingSettings(representation_dim=4, batch_size=4, epochs=1)
LARGE = SMALL.model_copy(update={"representation_dim": 4096, "batch_size": 4096})


class Ports:
    """Stands in for `start_server`: a port that somebody else may have taken."""

    def __init__(self, monkeypatch):
        self.is_taken = False
        self.bound = []
        self.limits = []
        self.has_rebound = asyncio.Event()
        monkeypatch.setattr(module, "start_server", self.start)
        monkeypatch.setattr(module, "REBIND_S", 0.4)
        monkeypatch.setattr(module, "RETRY_S", 0.001)

    async def start(self, listen, credentials, add_calls, options, *, refused, refusals):
        if self.is_taken:
            raise AddressError(f"cannot listen on {listen}", hint="stop what does")
        self.bound.append(listen)
        self.limits.append(dict(options)["grpc.max_receive_message_length"])
        if len(self.bound) > 1:
            self.has_rebound.set()
        return SimpleNamespace(address="127.0.0.1:7", stop=self.stop)

    async def stop(self):
        pass


def test_a_port_that_was_lost_is_tried_for_again(monkeypatch):
    """A client must not join a run with no port that its peers could dial."""

    async def play():
        ports = Ports(monkeypatch)
        server = PeerServer("127.0.0.1:0", Credentials(), lambda _: None)
        await server.start(SMALL, 2)
        ports.is_taken = True
        for settings in (LARGE, LARGE, SMALL):
            with pytest.raises(AddressError):
                await server.expect(settings, 2)
        ports.is_taken = False
        await server.expect(LARGE, 2)
        assert ports.bound == ["127.0.0.1:0", "127.0.0.1:7"]
        await server.expect(LARGE, 2)
        assert len(ports.bound) == 2, "nothing has changed"
        await server.stop()

    asyncio.run(asyncio.wait_for(play(), 10))


def test_each_run_that_finds_no_port_has_an_error_of_its_own(monkeypatch):
    """One that is raised again and again would grow by a traceback each time."""

    async def play():
        ports = Ports(monkeypatch)
        server = PeerServer("127.0.0.1:0", Credentials(), lambda _: None)
        await server.start(SMALL, 2)
        ports.is_taken = True
        errors = []
        for _ in range(2):
            with pytest.raises(AddressError) as caught:
                await server.expect(LARGE, 2)
            errors.append(caught.value)
        first, second = errors
        assert first is not second
        assert (str(first), str(second)) == ("cannot listen on 127.0.0.1:7; stop what does",) * 2
        await server.stop()

    asyncio.run(asyncio.wait_for(play(), 10))


def test_a_port_that_was_lost_comes_back_without_another_run(monkeypatch):
    """The coordinator may never ask again."""

    async def play():
        ports = Ports(monkeypatch)
        server = PeerServer("127.0.0.1:0", Credentials(), lambda _: None)
        await server.start(SMALL, 2)
        ports.is_taken = True
        with pytest.raises(AddressError):
            await server.expect(LARGE, 2)
        ports.is_taken = False
        await ports.has_rebound.wait()
        await server.expect(LARGE, 2)
        assert ports.bound == ["127.0.0.1:0", "127.0.0.1:7"]
        await server.stop()

    asyncio.run(asyncio.wait_for(play(), 10))


def test_settings_that_change_all_the_time_have_the_port_bound_a_few_times(monkeypatch):
    async def play():
        ports = Ports(monkeypatch)
        server = PeerServer("127.0.0.1:0", Credentials(), lambda _: None)
        await server.start(None, 0)
        for batch_size in [*range(1, 4000, 37), *range(4096, 1, -37), 4096]:
            await server.expect(LARGE.model_copy(update={"batch_size": batch_size}), 2)
        assert len(ports.bound) <= 7
        assert ports.limits == sorted(ports.limits)
        await server.stop()

    asyncio.run(asyncio.wait_for(play(), 10))


def test_a_limit_is_lowered_when_the_port_was_bound_long_ago(monkeypatch):
    async def play():
        ports = Ports(monkeypatch)
        server = PeerServer("127.0.0.1:0", Credentials(), lambda _: None)
        await server.start(LARGE, 2)
        await server.expect(SMALL, 2)
        assert len(ports.bound) == 1
        monkeypatch.setattr(module, "SETTLED_S", -1.0)
        await server.expect(SMALL, 2)
        assert ports.limits[1] < ports.limits[0]
        await server.stop()

    asyncio.run(asyncio.wait_for(play(), 10))
