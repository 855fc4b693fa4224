"""`align --dry-run`: have a running client align with everybody, and show who has what."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from laser_vfl.cli.durations import parse_seconds
from laser_vfl.cli.overlaps import print_overlaps
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.address import Address
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import AddressError, ConfigError, IdentityError, MismatchError
from laser_vfl.remote.operations import align, client_status
from laser_vfl.wire.credentials import Credentials, load_credentials

LISTENING = "listening.json"
"""Where a daemon writes, in its state directory, which addresses it has."""


@dataclass(frozen=True)
class AlignOptions:
    """What a person may say about an alignment."""

    config: Path
    dry_run: bool = False
    plot: Path | None = None
    timeout: str = "3600s"


def run_align(options: AlignOptions, *, as_json: bool) -> None:
    """Align without training; print the overlaps, and draw them if that is wanted."""
    if not options.dry_run:
        raise ConfigError(
            "a run aligns by itself, and only the dry run is a command", hint="add --dry-run"
        )
    timeout_s = parse_seconds(options.timeout, "--timeout")
    draw = _drawing(options.plot) if options.plot else None
    config = load_config(options.config, ClientConfig)
    address = str(daemon_address(config, options.config))
    credentials = daemon_credentials(config)
    _check_identity(config, address, credentials, options.config)
    with _waiting(f"{config.name} aligns its tables with the others'"):
        found = align(address, credentials, timeout_s)
    if as_json:
        print(json.dumps(found, ensure_ascii=False), flush=True)
    else:
        print_overlaps(found, config.federation, Console())
    if draw:
        draw(found, config.federation)
        if not as_json:
            print(f"picture: {options.plot}")


def daemon_address(config: ClientConfig, path: Path) -> Address:
    """Return where the daemon of a configuration answers; with port 0 it has left a note."""
    address = config.predict_listen
    if address.port == 0:
        try:
            text = (config.state / LISTENING).read_text("utf-8")
            address = Address(address.host, Address.parse(json.loads(text)["predict"]).port)
        except (OSError, ValueError, LookupError, TypeError, ConfigError):
            raise _not_up(config, path) from None
    if address.is_wildcard:
        # Its certificate is for the name by which peers know it.
        address = Address((config.advertise or config.listen).host, address.port)
    return address


def daemon_credentials(config: ClientConfig) -> Credentials:
    """Return what the daemon of a configuration wants to see from whoever asks it."""
    if config.predict_listen.is_loopback:
        return Credentials()
    if config.tls is None:
        raise IdentityError(
            f"{config.predict_listen} is not on loopback, and there is no tls section",
            where=config.where("predict_listen"),
            hint="add tls: {ca: …, cert: …, key: …}",
        )
    return load_credentials(config.tls.ca, config.tls.cert, config.tls.key)


def _check_identity(
    config: ClientConfig, address: str, credentials: Credentials, path: Path
) -> None:
    """An alignment is long, and days have only so many: start none at the wrong daemon."""
    try:
        status = client_status(address, credentials)
    except AddressError:
        raise _not_up(config, path, address) from None
    found = (status["federation"], status["client"])
    if found != (config.federation, config.name):
        raise MismatchError(
            f"{address} is {found[1]} of federation {found[0]}, "
            f"not {config.name} of {config.federation}",
            hint="is this the configuration that the daemon runs with?",
        )


def _not_up(config: ClientConfig, path: Path, address: str = "") -> AddressError:
    why = f"nobody answers at {address}" if address else "it has left no address in its state"
    return AddressError(
        f"the daemon of {config.name} does not seem to be up: {why}",
        hint=f"start it with `laser-vfl client run --config {path}`",
    )


def _drawing(path: Path) -> Callable[[dict[str, Any], str], None]:
    """Return what draws; whatever would fail afterwards fails now, before anybody is asked."""
    try:
        from laser_vfl.cli.upset import check_picture, write_picture
    except ImportError:
        raise ConfigError(
            "--plot needs matplotlib", hint="install it with pip install 'laser-vfl[plot]'"
        ) from None
    check_picture(path)
    return lambda found, federation: write_picture(found, federation, path)


@contextmanager
def _waiting(text: str) -> Iterator[None]:
    """Show on a terminal that something is under way, and for how long."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(text, total=None)
        yield
