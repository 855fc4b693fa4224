"""`forget`: take people out of what a client serves, and out of its later runs."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from laser_vfl.cli.predict_ids import open_ids, read_ids
from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.block import table_spec
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.forgotten import Forgotten
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data import normalise_ids, read_table
from laser_vfl.wire.audit import FILE_NAME, Audit

EFFECT = (
    "a running daemon obeys within two seconds, any other at its next start",
    "a run under way keeps their rows until it ends",
)
REMAINS = (
    "models that were trained with these people, here and at peers, with their checkpoints and "
    "the encoding in the manifest: `laser-vfl retrain` makes models without them",
    "what peers hold of them in tables of their own",
    "this organisation's own tables and backups, which are not touched",
)


def run_forget(config_path: Path, ids: Path | None, *, list_count: bool, as_json: bool) -> None:
    """Forget the people of a file, or tell how many are forgotten."""
    if list_count == (ids is not None):
        raise ConfigError("it is not clear what to do", hint="give either --ids or --list-count")
    config = load_config(config_path, ClientConfig)
    wanted = _read(ids) if ids is not None else []
    forgotten = _open(config)
    found: dict[str, Any] = {"client": config.name}
    if ids is not None:
        num_new = forgotten.add(wanted)
        found |= {"num_ids": len(wanted), "num_new": num_new}
        audit = Audit(config.state / FILE_NAME)
        audit.note("forgot", num_ids=len(wanted), num_new=num_new, num_forgotten=len(forgotten))
        num_held, problem = _count_held(config, set(wanted))
        found |= {"num_held": num_held, "problem": problem}
    found["num_forgotten"] = len(forgotten)
    if as_json:
        more = {"effect": EFFECT, "remains": REMAINS} if ids is not None else {}
        print(json.dumps({**found, **more}, ensure_ascii=False))
    elif ids is None:
        print(f"{config.name} has forgotten {len(forgotten)} people")
    else:
        _print(found)


def _read(path: Path) -> list[str]:
    """Return the ids of a file, each once."""
    with open_ids(path) as file:
        ids = normalise_ids(read_ids(file, path), where=str(path))
    if not ids:
        raise DataError("--ids has a header, but no ids", hint="add some")
    return list(dict.fromkeys(ids))


def _open(config: ClientConfig) -> Forgotten:
    state = StateDirectory(config.state, where=config.where("state"))
    if config.state.stat().st_uid != os.geteuid():
        raise ConfigError(
            f"the directory {config.state} belongs to another user",
            where=config.where("state"),
            hint="forget people as the user whom the daemon runs as",
        )
    forgotten = Forgotten(config.state, state.keys(config.id_secret_file), config.federation)
    forgotten.refresh()
    return forgotten


def _count_held(config: ClientConfig, wanted: set[str]) -> tuple[int | None, str]:
    """Return how many of the ids are in the tables; None, and why, if a table cannot be read."""
    spec = replace(table_spec(config), label=None)
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
