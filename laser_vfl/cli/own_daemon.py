"""The daemon of a configuration file: where it answers, and what its owner shows it."""

import json
from dataclasses import dataclass
from pathlib import Path

from laser_vfl.cli.daemon_config import (
    DaemonConfig,
    load_client_config,
    load_coordinator_config,
    load_daemon_config,
)
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.address import Address
from laser_vfl.config.shared_sections import TlsFiles
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import AddressError, ConfigError
from laser_vfl.remote.calls import Access, access_to
from laser_vfl.security.credentials import CredentialFiles, load_credentials
from laser_vfl.security.identity import Identity, client_of, coordinator_of

LISTENING = "listening.json"
"""Where a daemon writes, in its state directory, which addresses it has."""


@dataclass(frozen=True)
class OwnDaemon:
    """A daemon that this person runs; `config` says of which kind it is."""

    config: DaemonConfig
    path: Path
    address: str
    access: Access

    @property
    def metrics(self) -> str | None:
        """Where it says that its metrics are."""
        try:
            found = json.loads((self.config.state / LISTENING).read_text("utf-8"))["metrics"]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        return str(found)

    def listening(self) -> str:
        """Return where it answers other daemons, which is its `listen`."""
        return str(_address(self.config, self.config.listen, self.path, "listen"))

    def not_up(self) -> AddressError:
        """Return what to say when nobody answers."""
        return _not_up(self.config, self.path, f"nobody answers at {self.address}")


@dataclass(frozen=True)
class OwnClient(OwnDaemon):
    """A client that this person runs."""

    config: ClientConfig


def own_daemon(path: Path) -> OwnDaemon:
    """Return the daemon of a configuration, of either kind, reached with its own certificate."""
    return _reached(load_daemon_config(path), path)


def own_client(path: Path) -> OwnClient:
    """Return the same, of a client."""
    config = load_client_config(path)
    daemon = _reached(config, path)
    return OwnClient(config, path, daemon.address, daemon.access)


def own_coordinator(path: Path) -> OwnDaemon:
    """Return the same, of a coordinator."""
    return _reached(load_coordinator_config(path), path)


def _reached(config: DaemonConfig, path: Path) -> OwnDaemon:
    if isinstance(config, CoordinatorConfig):
        me = coordinator_of(config.federation)
        address = _address(config, config.listen, path, "listen")
    else:
        me = client_of(config.federation, config.name)
        address = _address(config, config.predict_listen, path, "predict")
    return OwnDaemon(config, path, str(address), _access(config.tls, me))


def _access(tls: TlsFiles | None, me: Identity) -> Access:
    if tls is None:
        return Access()
    return access_to(load_credentials(CredentialFiles(**tls.model_dump()), me), me)


def _address(config: DaemonConfig, address: Address, path: Path, key: str) -> Address:
    """Return where to dial a daemon on this machine; with port 0 it has left a note by that key."""
    if address.port == 0:
        try:
            text = (config.state / LISTENING).read_text("utf-8")
            address = Address(address.host, Address.parse(json.loads(text)[key]).port)
        except (OSError, ValueError, LookupError, TypeError, RecursionError, ConfigError):
            raise _not_up(config, path, "it has left no address in its state") from None
    if address.is_wildcard:
        address = Address("127.0.0.1", address.port)
    return address


def _not_up(config: DaemonConfig, path: Path, why: str) -> AddressError:
    kind = "client" if isinstance(config, ClientConfig) else "coordinator"
    name = config.name if isinstance(config, ClientConfig) else config.federation
    return AddressError(
        f"the daemon of {name} does not seem to be up: {why}",
        hint=f"start it with `laser-vfl {kind} run --config {path}`",
    )
