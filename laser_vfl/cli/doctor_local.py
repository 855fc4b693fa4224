"""What `doctor` checks on this machine alone: files, the state directory, the device."""

import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from laser_vfl.cli.doctor_finding import Finding, failed, ok, warn
from laser_vfl.client.config import ClientConfig
from laser_vfl.core.errors import ConfigError, LaserError
from laser_vfl.core.release import __version__

MIN_FREE_BYTES = 1 << 30
GIB = 1 << 30

FOR_OTHERS = stat.S_IRWXO | stat.S_IWGRP
"""A group may read a key: a daemon may run as another user than the one who renews it."""


def check_release() -> Finding:
    """Say what runs."""
    return ok("release", f"laser-vfl {__version__}, Python {platform.python_version()}")


def check_tables(config: ClientConfig) -> Iterator[Finding]:
    """Check that the tables are there and have their columns; their rows are not read."""
    from laser_vfl.client.block import table_spec
    from laser_vfl.client.serve_table import serve_spec
    from laser_vfl.data import check_header

    data, spec = config.data, table_spec(config)
    for name, path in {"train": data.train, "test": data.test, "serve": data.serve}.items():
        if path is None:
            continue
        check = f"data.{name}"
        try:
            num_features = check_header(path, serve_spec(spec) if name == "serve" else spec)
        except LaserError as error:
            yield failed(check, error)
        else:
            yield ok(check, f"{path}: has its columns, {num_features} of them features")


def check_secrets(config: ClientConfig) -> Iterator[Finding]:
    """Check what is nobody else's business: the id secret, and the tokens of applications."""
    from laser_vfl.client.tokens import Tokens
    from laser_vfl.data import read_secret

    if config.id_secret_file:
        try:
            read_secret(config.id_secret_file)
        except LaserError as error:
            yield failed("id_secret_file", error)
        else:
            yield private("id_secret_file", config.id_secret_file, "can be read")
    if config.serving.tokens_file:
        try:
            tokens = Tokens(config.serving.tokens_file)()
        except LaserError as error:
            yield failed("tokens_file", error)
        else:
            path = config.serving.tokens_file
            yield ok("tokens_file", f"{path}: tokens of {len(tokens)} applications")


def private(check: str, path: Path, message: str) -> Finding:
    """Return that all is well with a file, unless others may read it."""
    if path.stat().st_mode & FOR_OTHERS:
        return warn(check, f"{path}: others may read or change it", f"chmod 600 {path}")
    return ok(check, f"{path}: {message}")


def check_state(state: Path, where: str) -> Iterator[Finding]:
    """Check that a daemon could write its state, and that there is room for it."""
    try:
        directory = next(path for path in (state, *state.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=directory, prefix=".laser-vfl-doctor-"):
            pass
        usage = shutil.disk_usage(directory)
    except OSError as error:
        yield failed(
            "state",
            ConfigError(
                f"the directory {state} cannot be written ({error.strerror})",
                where=where,
                hint="make it writable, or change `state`",
            ),
        )
        return
    yield ok("state", f"{state}: {'can be written' if state.exists() else 'can be made'}")
    needed = max(MIN_FREE_BYTES, 2 * _largest_model(state))
    room = f"{usage.free / GIB:.1f} GiB free"
    if usage.free < needed:
        yield warn("disk", f"{room}, and {needed / GIB:.1f} are advised", "make room at `state`")
    else:
        yield ok("disk", room)


def check_device(config: ClientConfig) -> Iterator[Finding]:
    """Check that the device is there, and say how widely it computes."""
    import torch

    from laser_vfl.client.device import num_cores, pick_device

    try:
        device = pick_device(config.device, where=config.where("device"))
    except LaserError as error:
        yield failed("device", error)
        return
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    cores = num_cores()
    threads = cores if config.threads == "auto" else config.threads
    message = f"{name}, {threads} threads, torch {torch.__version__}"
    if threads > cores:
        yield warn("device", f"{message}, and {cores} cores", "use threads: auto")
    else:
        yield ok("device", message)


def _largest_model(state: Path) -> int:
    """Return the size of the largest file that is written beside its older one."""
    sizes = [0]
    for folder, _, names in os.walk(state):
        for name in names:
            if name.endswith(".safetensors"):
                path = Path(folder, name)
                sizes.append(path.stat().st_size if path.exists() else 0)
    return max(sizes)
