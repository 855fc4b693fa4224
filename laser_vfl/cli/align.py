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
from laser_vfl.cli.own_daemon import OwnDaemon, own_client
from laser_vfl.client.config import ClientConfig
from laser_vfl.core.errors import AddressError, ConfigError, MismatchError
from laser_vfl.remote.operations import align, client_status


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
    daemon = own_client(options.config)
    config = daemon.config
    assert isinstance(config, ClientConfig)
    _check_identity(daemon)
    with _waiting(f"{config.name} aligns its tables with the others'"):
        found = align(daemon.address, daemon.access, timeout_s)
    if as_json:
        print(json.dumps(found, ensure_ascii=False), flush=True)
    else:
        print_overlaps(found, config.federation, Console())
    if draw:
        draw(found, config.federation)
        if not as_json:
            print(f"picture: {options.plot}")


def _check_identity(daemon: OwnDaemon) -> None:
    """An alignment is long, and days have only so many: start none at the wrong daemon."""
    config = daemon.config
    assert isinstance(config, ClientConfig)
    try:
        status = client_status(daemon.address, daemon.access)
    except AddressError:
        raise daemon.not_up() from None
    found = (status["federation"], status["client"])
    if found != (config.federation, config.name):
        raise MismatchError(
            f"{daemon.address} is {found[1]} of federation {found[0]}, "
            f"not {config.name} of {config.federation}",
            hint="is this the configuration that the daemon runs with?",
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
