"""Configuration files of daemons: which kind of daemon a file is for, and reading it as that.

A coordinator loads nothing of the client's, so each kind is imported only when it is needed.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Union

from laser_vfl.config.loading import is_of, load_config
from laser_vfl.core.errors import ConfigError

if TYPE_CHECKING:
    from laser_vfl.client.config import ClientConfig
    from laser_vfl.coordinator.config import CoordinatorConfig

DaemonConfig = Union["ClientConfig", "CoordinatorConfig"]


def load_daemon_config(path: Path) -> DaemonConfig:
    """Return the configuration of a file, as that of the daemon whose keys it has."""
    from laser_vfl.client.config import ClientConfig
    from laser_vfl.coordinator.config import CoordinatorConfig

    if is_of(path, CoordinatorConfig, ClientConfig):
        return load_config(path, CoordinatorConfig)
    return load_config(path, ClientConfig)


def check_daemon_user(config: DaemonConfig, doing: str) -> None:
    """Refuse to write what a daemon reads as another user than it runs as."""
    try:
        owner = config.state.stat().st_uid
    except OSError:
        return  # there is none yet
    if owner != os.geteuid():
        raise ConfigError(
            f"the directory {config.state} belongs to another user",
            where=config.where("state"),
            hint=f"{doing} as the user whom the daemon runs as",
        )


def load_client_config(path: Path) -> "ClientConfig":
    """Return the configuration of a client; say so if the file is a coordinator's."""
    from laser_vfl.client.config import ClientConfig

    try:
        return load_config(path, ClientConfig)
    except ConfigError:
        from laser_vfl.coordinator.config import CoordinatorConfig

        if not is_of(path, CoordinatorConfig, ClientConfig):
            raise
    raise ConfigError(
        "this is the configuration of a coordinator",
        where=str(path),
        hint="give a client's; `laser-vfl coordinator run` takes this one",
    )


def load_coordinator_config(path: Path) -> "CoordinatorConfig":
    """Return the configuration of a coordinator; say so if the file is a client's."""
    from laser_vfl.coordinator.config import CoordinatorConfig

    try:
        return load_config(path, CoordinatorConfig)
    except ConfigError:
        from laser_vfl.client.config import ClientConfig

        if not is_of(path, ClientConfig, CoordinatorConfig):
            raise
    raise ConfigError(
        "this is the configuration of a client",
        where=str(path),
        hint="give the coordinator's; `laser-vfl client run` takes this one",
    )
