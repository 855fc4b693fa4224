"""Where others are, as the coordinator tells it: host:port, and no other target of gRPC."""

from laser_vfl.config.address import Address
from laser_vfl.core.errors import ConfigError, ContractError, quoted


def told_address(text: str, client: str) -> str:
    """Return the address of a client, or refuse one that could lead elsewhere than to a host."""
    try:
        Address.parse(text)
    except ConfigError:
        raise ContractError(
            f"the coordinator says that {quoted(client)} is at {quoted(text)}, no host:port"
        ) from None
    return text
