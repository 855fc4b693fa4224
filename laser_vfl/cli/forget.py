"""`forget`: take people out of what a client serves, and out of its later runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laser_vfl.cli.daemon_config import check_daemon_user, load_client_config
from laser_vfl.cli.ids_file import open_ids, read_ids
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import unlabelled_spec
from laser_vfl.client.tables.erasure_list import FILE_NAME as ERASURE_FILE
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.table_listing import read_keys
from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data import normalise_ids, read_table
from laser_vfl.observability.audit_log import FILE_NAME as AUDIT_FILE
from laser_vfl.observability.audit_log import AuditLog

EFFECT = (
    "a running daemon obeys within two seconds, any other at its next start",
    "a run under way keeps their rows until it ends",
)
REMAINS = (
    "models that were trained with these people, here and at peers, with their checkpoints and "
    "the encoding in the manifest: `laser-vfl retrain --config coordinator.yaml` makes models "
    "without them",
    "what peers hold of them in tables of their own",
    "this organisation's own tables and backups, which are not touched",
)


def run_forget(config_path: Path, ids: Path | None, *, list_count: bool, as_json: bool) -> None:
    """Forget the people of a file, or tell how many are forgotten."""
    if list_count == (ids is not None):
        raise ConfigError("it is not clear what to do", hint="give either --ids or --list-count")
    config = load_client_config(config_path)
    if ids is None:
        _print_count(config.name, _num_forgotten(config), as_json=as_json)
        return
    wanted = _read(ids, config.data.id)
    forgotten = _open(config)
    num_new = forgotten.add(wanted)
    audit = AuditLog(config.state / AUDIT_FILE)
    audit.note("forgot", num_ids=len(wanted), num_new=num_new, num_forgotten=len(forgotten))
    num_held, problem = _count_held(config, set(wanted))
    found: dict[str, Any] = {
        "client": config.name,
        "num_ids": len(wanted),
        "num_new": num_new,
        "num_held": num_held,
        "problem": problem,
        "num_forgotten": len(forgotten),
    }
    if as_json:
        print(json.dumps({**found, "effect": EFFECT, "remains": REMAINS}, ensure_ascii=False))
    else:
        _print(found)


def _print_count(client: str, num_forgotten: int, *, as_json: bool) -> None:
    if as_json:
        found = {"client": client, "num_forgotten": num_forgotten}
        print(json.dumps(found, ensure_ascii=False))
    else:
        print(f"{client} has forgotten {num_forgotten} people")


def _num_forgotten(config: ClientConfig) -> int:
    """Return how many people are on the list; without a list, nothing is opened or created."""
    try:
        has_list = (config.state / ERASURE_FILE).exists()
    except OSError as error:
        raise ConfigError(
            f"the directory {config.state} cannot be read ({error.strerror})",
            where=config.where("state"),
            hint="ask as the user whom the daemon runs as",
        ) from None
    return len(_open(config)) if has_list else 0


def _read(path: Path, column: str) -> list[str]:
    """Return the ids of a file, each once."""
    with open_ids(path) as file:
        ids = normalise_ids(read_ids(file, path, column), where=str(path))
    if not ids:
        raise DataError("--ids has a header, but no ids", hint="add some")
    return list(dict.fromkeys(ids))


def _open(config: ClientConfig) -> ErasureList:
    state = StateDirectory(config.state, where=config.where("state"))
    check_daemon_user(config, "forget people")
    forgotten = ErasureList(
        config.state, read_keys(state, config.id_secret_file), config.federation
    )
    forgotten.refresh()
    return forgotten


def _count_held(config: ClientConfig, wanted: set[str]) -> tuple[int | None, str]:
    """Return how many of the ids are in the tables; None, and why, if a table cannot be read."""
    spec = unlabelled_spec(config)
    held: set[str] = set()
    for path in (config.data.train, config.data.test, config.data.serve):
        if path is None:
            continue
        try:
            held |= wanted.intersection(read_table(path, spec).ids)
        except DataError as error:
            return None, str(error)
    return len(held), ""


def _print(found: dict[str, Any]) -> None:
    lines: Sequence[str] = (
        f"{found['num_new']} of {found['num_ids']} people are forgotten from now on by "
        f"{found['client']}, {found['num_forgotten']} in all",
        f"{found['num_held']} of them are in its tables now"
        if found["num_held"] is not None
        else f"it cannot be told how many are in its tables: {found['problem']}",
        *EFFECT,
        "what may remain:",
        *(f"  {text}" for text in REMAINS),
    )
    print("\n".join(lines))
