"""Unit tests open no socket and make no gRPC call: what needs one belongs to tests/integration."""

import socket
from collections.abc import Callable
from typing import NoReturn

import grpc
import pytest

WRONG_FOLDER = "a unit test opens a socket: it belongs to tests/integration"


class _LocalSocket(socket.socket):
    """Only for the pair by which an event loop wakes itself, and for what is open already."""

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        assert family == socket.AF_UNIX or fileno is not None, WRONG_FOLDER
        super().__init__(family, type, proto, fileno)

    def bind(self, _: object) -> NoReturn:
        raise AssertionError(WRONG_FOLDER)

    def connect(self, _: object) -> NoReturn:
        raise AssertionError(WRONG_FOLDER)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError(WRONG_FOLDER)


class _IdleChannel:
    """A channel that may be made and closed, as by a client of a daemon; a call on it fails."""

    def __init__(self, *_: object, **__: object) -> None:
        self.unary_unary = self.unary_stream = self.stream_unary = self.stream_stream = self._method

    def _method(self, *_: object, **__: object) -> Callable[..., NoReturn]:
        return _refuse

    def close(self) -> None:
        pass


class _IdleAioChannel(_IdleChannel):
    """The same for asyncio."""

    async def close(self, grace: float | None = None) -> None:  # type: ignore[override]
        pass


@pytest.fixture(autouse=True)
def _no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sockets fail: Python's own, and those of gRPC's servers and channels."""
    monkeypatch.setattr(socket, "socket", _LocalSocket)
    for module, channel in ((grpc, _IdleChannel), (grpc.aio, _IdleAioChannel)):
        monkeypatch.setattr(module, "server", _refuse)
        monkeypatch.setattr(module, "insecure_channel", channel)
        monkeypatch.setattr(module, "secure_channel", channel)
