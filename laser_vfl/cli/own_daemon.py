"""The daemon of a configuration file: where it answers, and what its owner shows it."""

import json
from dataclasses import dataclass
from pathlib import Path

from laser_vfl.client.config import ClientConfig
from laser_vfl.config.address import Address
from laser_vfl.config.loading import is_of, load_config
from laser_vfl.config.tls import TlsFiles
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import AddressError, ConfigError
from laser_vfl.remote.calls import Access, access_to
from laser_vfl.wire.credentials import CredentialFiles, load_credentials
from laser_vfl.wire.identity import Identity, client_of, coordinator_of

LISTENING = "listening.json"
"""Where a daemon writes, in its state directory, which addresses it has."""


@dataclass(frozen=True)
class OwnDaemon:
    """A daemon that this person runs; `config` says of which kind it is."""

    config: ClientConfig | CoordinatorConfig
    path: Path
    address: str
    access: Access

    @property
    def metrics(self) -> str | None:
        """Where it says that its metrics are."""
        try:
            found = json.loads((self.config.state / LISTENING).read_text("utf-8"))["metrics"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return str(found)

    def listening(self) -> str:
        """Return where it answers other daemons, which is its `listen`."""
        return str(_address(self.config, self.config.listen, self.path, "listen"))

    def not_up(self) -> AddressError:
        """Return what to say when nobody answers."""
        return _not_up(self.config, self.path, f"nobody answers at {self.address}")


def own_daemon(path: Path) -> OwnDaemon:
    """Return the daemon of a configuration, of either kind, reached with its own certificate."""
    config: ClientConfig | CoordinatorConfig
    if is_of(path, CoordinatorConfig, ClientConfig):
        config = load_config(path, CoordinatorConfig)
        me = coordinator_of(config.federation)
        address = _address(config, config.listen, path, "listen")
    else:
        config = load_config(path, ClientConfig)
        me = client_of(config.federation, config.name)
        address = _address(config, config.predict_listen, path, "predict")
    return OwnDaemon(config, path, str(address), _access(config.tls, me))


def own_client(path: Path) -> OwnDaemon:
    """Return the same, of a client."""
    daemon = own_daemon(path)
    if isinstance(daemon.config, CoordinatorConfig):
        raise ConfigError(
            "this is the configuration of a coordinator", where=str(path), hint="give a client's"
        )
    return daemon


def own_coordinator(path: Path) -> OwnDaemon:
    """Return the same, of a coordinator."""
    daemon = own_daemon(path)
    if isinstance(daemon.config, ClientConfig):
        raise ConfigError(
            "this is the configuration of a client", where=str(path), hint="give the coordinator's"
        )
    return daemon


def _access(tls: TlsFiles | None, me: Identity) -> Access:
    if tls is None:
        return Access()
    return access_to(load_credentials(CredentialFiles(**tls.model_dump()), me), me)


def _address(
    config: ClientConfig | CoordinatorConfig, address: Address, path: Path, key: str
) -> Address:
    """Return where to dial a daemon on this machine; with port 0 it has left a note by that key."""
    if address.port == 0:
        try:
            text = (config.state / LISTENING).read_text("utf-8")
            address = Address(address.host, Address.parse(json.loads(text)[key]).port)
        except (OSError, ValueError, LookupError, TypeError, ConfigError):
            raise _not_up(config, path, "it has left no address in its state") from None
    if address.is_wildcard:
        address = Address("127.0.0.1", address.port)
    return address


def _not_up(config: ClientConfig | CoordinatorConfig, path: Path, why: str) -> AddressError:
    kind = "client" if isinstance(config, ClientConfig) else "coordinator"
    name = config.name if isinstance(config, ClientConfig) else config.federation
    return AddressError(
        f"the daemon of {name} does not seem to be up: {why}",
        hint=f"start it with `laser-vfl {kind} run --config {path}`",
    )
