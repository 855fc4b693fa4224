"""Bare gRPC to compare with: a process that sends back what it gets, and prints its port."""

import asyncio
from typing import Any

import grpc
import grpc.aio


async def _serve() -> None:
    async def echo(request: bytes, context: Any) -> bytes:
        return request

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("laser_vfl.Echo", {"Echo": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
