"""Messages that are too long for their method are refused before they are parsed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from laser_vfl.transport.grpc_status import AuthInterceptor
from laser_vfl.transport.message_limits import HEARTBEAT_BYTES, MAX_BYTES
from laser_vfl.v1 import coordinator_pb2 as pb


def parser_of(method: str) -> Any:
    """Return what parses the messages of a method at a server of ours."""
    handler = grpc.stream_stream_rpc_method_handler(
        lambda *_: None, request_deserializer=lambda data: pb.Heartbeat.FromString(data)
    )

    async def continuation(_: object) -> object:
        return handler

    nobody: Any = None
    details: Any = SimpleNamespace(method=method)
    interceptor = AuthInterceptor(nobody, nobody)
    wrapped = asyncio.run(interceptor.intercept_service(continuation, details))
    return wrapped.request_deserializer


def test_a_heartbeat_of_a_megabyte_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = parser_of("/laser_vfl.v1.Coordinator/Session")
    assert parse(pb.Heartbeat(client="bank").SerializeToString()).client == "bank"
    monkeypatch.setattr(pb, "Heartbeat", None)
    with pytest.raises(DecodeError):
        parse(b"\x8a\1\0" * (HEARTBEAT_BYTES // 3 + 1))


def test_every_limited_method_exists() -> None:
    services = pb.DESCRIPTOR.services_by_name.values()
    methods = {f"/{service.full_name}/{m.name}" for service in services for m in service.methods}
    assert set(MAX_BYTES) <= methods
