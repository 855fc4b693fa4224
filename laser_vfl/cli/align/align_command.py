"""`align --dry-run`: have a running client align with all others, and show the overlaps."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from laser_vfl.cli.align.overlaps import print_overlaps
from laser_vfl.cli.option_parsers import parse_seconds
from laser_vfl.cli.own_daemon import OwnDaemon, own_client
from laser_vfl.cli.status import work_line
from laser_vfl.client.config import ClientConfig
from laser_vfl.core.errors import AddressError, ConfigError, LaserError, MismatchError
from laser_vfl.remote.operations import align, client_status

POLL_S = 1.0


@dataclass(frozen=True)
class AlignOptions:
    """The options of the command, as they were given."""

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
    with _waiting(f"{config.name} aligns its tables with the others'", daemon):
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
    """Check that the daemon is ours: an alignment takes long, and is limited per day."""
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
    """Return a function that draws; what would make it fail is checked before the alignment."""
    try:
        from laser_vfl.cli.align.upset import check_picture, write_picture
    except ImportError:
        raise ConfigError(
            "--plot needs matplotlib", hint="install it with pip install 'laser-vfl[plot]'"
        ) from None
    check_picture(path)
    return lambda found, federation: write_picture(found, federation, path)


@contextmanager
def _waiting(text: str, daemon: OwnDaemon) -> Iterator[None]:
    """Show on a terminal that something is under way, for how long, and how far it is."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task, done = progress.add_task(text, total=None), threading.Event()

        def follow() -> None:
            while not done.wait(POLL_S):
                with suppress(LaserError):
                    work = client_status(daemon.address, daemon.access)["work"]
                    line = f": {work_line([work], work['work'])}" if work else ""
                    progress.update(task, description=text + line)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            done.set()
            follower.join()
