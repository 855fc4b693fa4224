"""A gRPC server as every daemon runs it: one port, health, errors as status, bounded messages."""

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from laser_vfl.config.address import cannot_listen
from laser_vfl.observability.audit_log import Refused
from laser_vfl.security.access import Authorizer
from laser_vfl.security.credentials import Credentials
from laser_vfl.security.identity import Identity
from laser_vfl.transport.grpc_status import AuthInterceptor, RefusalPacer
from laser_vfl.transport.message_limits import Options
from laser_vfl.transport.protocol import KEEPALIVE, SERVER_BOUNDS

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Server:
    """A server that is listening. `address` has the real port, also when port 0 was asked for."""

    def __init__(self, server: grpc.aio.Server, health: health_aio.HealthServicer, address: str):
        self._server = server
        self._health = health
        self.address = address

    async def set_healthy(self, healthy: bool, service: str = "") -> None:
        """Tell the health service, and so whoever watches it, whether to send work here."""
        await self._health.set(service, _SERVING if healthy else _NOT_SERVING)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Refuse new calls, let running ones end, then close."""
        await self.set_healthy(False)
        await self._server.stop(grace_s)


async def start_server(
    listen: str,
    credentials: Credentials,
    add_services: Callable[[grpc.aio.Server], None],
    options: Options,
    *,
    key: str = "listen",
    authorizer: Authorizer | None = None,
    refused: Refused = lambda *_: None,
    refusals: RefusalPacer | None = None,
) -> Server:
    """Bind an address and serve; a port that is taken is an error, not a second listener.

    `key` is what the configuration calls the address.
    """
    authorizer = authorizer or Authorizer(credentials)
    server = grpc.aio.server(
        interceptors=[AuthInterceptor(authorizer, refused, refusals)],
        options=[("grpc.so_reuseport", 0), *KEEPALIVE, *SERVER_BOUNDS, *options],
    )
    health = health_aio.HealthServicer()
    add_HealthServicer_to_server(health, server)
    add_services(server)
    try:
        port = (
            server.add_secure_port(
                listen, credentials.for_server(demand_certificate=authorizer.tokens is None)
            )
            if credentials.secure
            else server.add_insecure_port(listen)
        )
    except RuntimeError:
        raise cannot_listen(listen, key) from None
    await server.start()
    running = Server(server, health, f"{listen.rpartition(':')[0]}:{port}")
    await running.set_healthy(True)
    return running


def open_channel(
    address: str, credentials: Credentials, to: Identity, options: Options
) -> grpc.aio.Channel:
    """Return a channel to a daemon; nothing is dialled before the first call.

    Whatever the address is, whoever answers there has to prove to be `to`.
    """
    options = [*KEEPALIVE, *options]
    if credentials.secure:
        named = [("grpc.ssl_target_name_override", to.dns)]
        return grpc.aio.secure_channel(
            address, credentials.for_channel(to), options=[*options, *named]
        )
    return grpc.aio.insecure_channel(address, options=options)


async def connected(channel: grpc.aio.Channel) -> None:
    """Wait until a channel is connected, however often it has to try.

    One that is closed meanwhile raises InvalidStateError, as a call on it does.
    """
    try:
        while (state := channel.get_state(try_to_connect=True)) != grpc.ChannelConnectivity.READY:
            await channel.wait_for_state_change(state)
    except grpc.aio.UsageError:
        raise asyncio.InvalidStateError("the channel is closed") from None
