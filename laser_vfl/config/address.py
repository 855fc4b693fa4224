"""Network addresses as people write them: host:port."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from laser_vfl.config.section import problem
from laser_vfl.config.text import shown
from laser_vfl.core.errors import AddressError, ConfigError


@dataclass(frozen=True)
class Address:
    """A host (a name, an IPv4 or an IPv6 address without brackets) and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address in "localhost:7000", "10.0.0.1:7000" or "[::1]:7000"."""
        bracketed = _BRACKETED.fullmatch(text)
        host, colon, port = bracketed.groups() if bracketed else text.rpartition(":")
        if not colon or not host:
            raise _malformed(text)
        if not bracketed and ":" in host:
            raise _malformed(text, 'put an IPv6 address in brackets, as in "[::1]:7000"')
        if host.lower() in _SCHEMES:
            raise _malformed(text, f'gRPC takes "{host}:" for more than a host; write another name')
        if not (_is_ipv6(host) if bracketed else _is_host(host)):
            raise _malformed(text, "write a host name or an IP address before the port")
        if not _PORT.fullmatch(port) or int(port) > 65_535:
            raise _malformed(text, "write a port from 0 to 65535 after the colon")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether traffic to it stays on this machine."""
        if self.host.lower() == "localhost":
            return True
        ip = _ip(self.host)
        return ip is not None and ip.is_loopback

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every interface: fit to listen on, not to dial."""
        ip = _ip(self.host)
        return ip is not None and ip.is_unspecified

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validated, serialization=core_schema.to_string_ser_schema()
        )


def _checked_dial(address: Address) -> Address:
    if address.is_wildcard:
        raise problem(
            f'"{address}" is not an address that others can dial',
            "write a host name or IP address of this machine that they can reach",
        )
    if address.port == 0:
        raise problem(
            f'"{address}" has port 0, which nobody can dial', "write a port from 1 to 65535"
        )
    return address


DialAddress = Annotated[Address, AfterValidator(_checked_dial)]
"""An address to connect to: neither a wildcard host nor port 0."""

MetricsAddress = Annotated[Address, Field(examples=["127.0.0.1:9464"])]
"""Where a daemon serves its metrics."""

LOOPBACK = Address("127.0.0.1", 0)
"""Any port that is free, for this machine alone."""

_EXAMPLE = "write host:port, such as 127.0.0.1:7000"
_BRACKETED = re.compile(r"\[([^\[\]\s]*)\](:)(.*)")
_PORT = re.compile(r"[0-9]{1,5}")
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?", re.IGNORECASE)
_ONLY_NUMBERS = re.compile(r"[0-9.]+")
_SCHEMES = {"dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds", "google-c2p"}
"""What gRPC reads as the way to an address: "unix:7000" is a socket in a file."""


def _validated(value: Any) -> Address:
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise problem(f"expected an address host:port, got {shown(value)}", _EXAMPLE)
    try:
        return Address.parse(value)
    except ConfigError as error:
        raise problem(error.message, error.hint) from None


def _malformed(text: str, hint: str = _EXAMPLE) -> ConfigError:
    return ConfigError(f"expected an address host:port, got {shown(text)}", hint=hint)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_ipv6(host: str) -> bool:
    return isinstance(_ip(host), ipaddress.IPv6Address)


def _is_host(host: str) -> bool:
    if _ONLY_NUMBERS.fullmatch(host):
        return _ip(host) is not None
    return len(host) <= 253 and _HOST_NAME.fullmatch(host) is not None


def cannot_listen(listen: str, key: str) -> AddressError:
    """Return the error of an address that cannot be had, under its key of the configuration."""
    return AddressError(
        f"cannot listen on {listen}",
        hint=f"is the port in use, or the address not of this machine? choose another `{key}`",
    )
