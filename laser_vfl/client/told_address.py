"""Where others are, as the coordinator tells it: host:port, and no other target of gRPC."""

from laser_vfl.config.address import Address
from laser_vfl.core.errors import ConfigError, ContractError, quoted

_SCHEMES = frozenset(("dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds"))
"""Before a colon these are no host to gRPC: unix:7000 is a socket in the file system."""


def told_address(text: str, client: str) -> str:
    """Return the address of a client, or refuse one that could lead elsewhere than to a host."""
    try:
        host = Address.parse(text).host
    except ConfigError:
        host = ""
    if not host or host.lower() in _SCHEMES:
        raise ContractError(
            f"the coordinator says that {quoted(client)} is at {quoted(text)}, no host:port"
        )
    return text
