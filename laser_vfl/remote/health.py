"""Asking a daemon whether it serves, by the standard health service of gRPC."""

from contextlib import closing

from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from laser_vfl.remote.calls import Access, call, open_channel

TIMEOUT_S = 5.0
SERVING = "SERVING"


def health_of(address: str, access: Access) -> str:
    """Return SERVING, NOT_SERVING or UNKNOWN, as the daemon says."""
    with closing(open_channel(address, access)) as channel:
        ask = HealthStub(channel).Check
        answer = call(ask, health_pb2.HealthCheckRequest(), address, TIMEOUT_S)
    try:
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
    except ValueError:
        return "UNKNOWN"
