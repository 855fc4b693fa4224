"""What `doctor` checks on this machine alone: files, the state directory, the device."""

import os
import platform
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from laser_vfl.cli.doctor.finding import Finding, failed, ok, warn
from laser_vfl.client.config import ClientConfig
from laser_vfl.core.errors import ConfigError, LaserError
from laser_vfl.core.release import __version__

if TYPE_CHECKING:
    from laser_vfl.data import Encoding, LabelEncoding, TableSpec
    from laser_vfl.security.token_file import Token

    ReadTables = tuple[Encoding, LabelEncoding | None]

MIN_FREE_BYTES = 1 << 30
GIB = 1 << 30


def check_release() -> Finding:
    """Report the release and the version of Python."""
    return ok("release", f"laser-vfl {__version__}, Python {platform.python_version()}")


def check_tables(config: ClientConfig) -> Generator[Finding, None, "ReadTables | None"]:
    """Check that the tables are there and have their columns, then their rows and labels.

    Returns how they are encoded; None if that is not known, for one of them cannot be used.
    """
    from laser_vfl.client.tables.block import table_spec, unlabelled_spec
    from laser_vfl.data import check_excluded, check_header

    data, spec = config.data, table_spec(config)
    num_failed = 0
    for name, path in {"train": data.train, "test": data.test, "serve": data.serve}.items():
        if path is None:
            continue
        check = f"data.{name}"
        try:
            num_features = check_header(path, unlabelled_spec(config) if name == "serve" else spec)
            if name == "train":
                check_excluded(path, spec)
        except LaserError as error:
            num_failed += 1
            yield failed(check, error)
        else:
            yield ok(check, f"{path}: has its columns, {num_features} of them features")
    if num_failed:
        return None
    return (yield from _check_rows(config, data.train, data.test, spec))


def _check_rows(
    config: ClientConfig, train: Path, test: Path | None, spec: "TableSpec"
) -> Generator[Finding, None, "ReadTables | None"]:
    """Read the rows as a client does when it starts, and check what it would learn to predict."""
    from laser_vfl.client.tables.block import fit_labels
    from laser_vfl.data import Encoding, check_classes, check_tables_apart, read_table
    from laser_vfl.data.table_report import label_remarks, report_of

    try:
        rows = read_table(train, spec)
        encoding = Encoding.fit(rows)
        encoding.apply(rows)
        message = f"{len(rows)} to train"
        if test is not None:
            test_rows = read_table(test, spec)
            check_tables_apart(rows, test_rows)
            encoding.apply(test_rows)
            message += f", {len(test_rows)} to test"
    except LaserError as error:
        yield failed("data.rows", error)
        return None
    yield ok("data.rows", message)
    report = report_of(rows, encoding, None)
    if report.columns:
        yield ok("data.columns", report.summary)
    for line in report.warnings:
        yield warn("data.columns", line, "`laser-vfl data show` says how each is read")
    try:
        labels = fit_labels(config, rows)
        if labels is None:
            return encoding, None
        if config.privacy.labels is not None:
            check_classes(rows, labels)
        if test is not None:
            labels.apply(test_rows)
    except LaserError as error:
        yield failed("data.label", error)
        return encoding, None
    for remark in label_remarks(rows, labels):
        yield warn("data.label", remark.text, "correct the labels, or leave it if it is meant")
    classes = f" with {len(labels.classes)} classes" if labels.classes else ""
    yield ok("data.label", f"{train}: {spec.label} is a {labels.task} task{classes}")
    private = config.privacy.labels
    if private is not None:
        yield ok(
            "privacy.labels", f"labels to train with are randomised, epsilon {private.epsilon:g}"
        )
    return encoding, labels


def check_models(config: ClientConfig, tables: "ReadTables | None") -> Finding:
    """Check that the models of the configuration exist, and fit the tables if these are read."""
    from laser_vfl.client import model_building
    from laser_vfl.client.tables.block import check_model_names

    try:
        check_model_names(config)
        if tables is not None:
            model_building.check_models(config, *tables)
    except LaserError as error:
        return failed("model", error)
    return ok("model", f"representation {config.model.representation}, head {config.model.fusion}")


def check_required(config: ClientConfig) -> Finding:
    """Report what the coordinator has to say for this client to join."""
    from laser_vfl.client.run.requirements import required

    named = required(config)
    return ok("require", ", ".join(named) or "nothing: this client joins on any settings")


def check_privacy(config: ClientConfig) -> Iterator[Finding]:
    """Report what noise has spent so far; nothing without noise."""
    from laser_vfl.client.privacy_budget import check_accountant
    from laser_vfl.client.privacy_ledger import PrivacyLedger

    privacy = config.privacy
    if not privacy.noise:
        return
    try:
        check_accountant(config)
        ledger = PrivacyLedger(config)
        spent = ledger.epsilon_spent()
    except LaserError as error:
        yield failed("privacy", error)
        return
    most = f" of {privacy.max_epsilon:g}" if privacy.max_epsilon is not None else ""
    at = f"delta {privacy.delta:g}, runs so far: {ledger.num_runs}"
    yield ok("privacy", f"epsilon {spent:.4g}{most} spent ({at})")


def check_secrets(config: ClientConfig) -> Iterator[Finding]:
    """Check the files that have to be private: the id secret, and the tokens of applications."""
    from laser_vfl.data import read_secret
    from laser_vfl.security.token_file import read_tokens

    if config.id_secret_file:
        try:
            read_secret(config.id_secret_file)
        except LaserError as error:
            yield failed("id_secret_file", error)
        else:
            yield ok("id_secret_file", f"{config.id_secret_file}: can be read, and is private")
    if config.serving.tokens_file:
        try:
            tokens = read_tokens(config.serving.tokens_file)
        except LaserError as error:
            yield failed("tokens_file", error)
        else:
            path = config.serving.tokens_file
            yield _check_tokens(path, tokens)


def _check_tokens(path: Path, tokens: Sequence["Token"]) -> Finding:
    """Warn of tokens that are there as they are, or have ended."""
    add = "`laser-vfl tokens add`"
    if plain := {token.name for token in tokens if token.is_plain}:
        names = ", ".join(sorted(plain))
        return warn(
            "tokens_file", f"{path}: has tokens of {names} as they are", f"{add} hashes them"
        )
    now = datetime.now(UTC)
    good = {token.name for token in tokens if not token.is_over(now)}
    if over := {token.name for token in tokens} - good:
        return warn("tokens_file", f"{path}: no token of {', '.join(sorted(over))} is good", add)
    return ok("tokens_file", f"{path}: tokens of {len(good)} applications")


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
    """Check that the device exists, and report its threads."""
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
