"""`data prepare`: writing a data set as a federation, and showing how to run it."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.missing import PMiss
from laser_vfl.experiments.prepared_federation import PrepareOptions, prepare


def parse_p_miss(text: str) -> PMiss:
    """Return a probability; whether it is one is checked where it is used."""
    if text == "beta":
        return "beta"
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f'a block cannot be missing with probability "{text}"',
            hint="use a number from 0 to 1, without 1, or beta",
        ) from None


def run_prepare(options: PrepareOptions, *, as_json: bool) -> None:
    """Write everything and print what to run next."""
    result = prepare(options) | {"commands": _commands(options)}
    if as_json:
        print(json.dumps(result))
    else:
        _print(result)


def _commands(options: PrepareOptions) -> list[str]:
    flag = " --insecure" if options.insecure else ""
    first, *others = options.names
    run = f"laser-vfl client run{flag} --exit-after-training --config"
    certs = [
        f"laser-vfl certs init --federation {options.dataset} --dir certs",
        f"laser-vfl certs issue --dir certs --all {','.join(options.names)}",
    ]
    return [
        f"cd {shlex.quote(str(options.out))}",
        *([] if options.insecure else certs),
        f"laser-vfl coordinator run{flag} --config coordinator.yaml 2> coordinator.log & "
        "coordinator=$!",
        *(f"{run} {name}.yaml 2> {name}.log &" for name in others),
        f"{run} {first}.yaml",
        "kill $coordinator",
    ]


def _print(result: Mapping[str, Any]) -> None:
    for note in result["notes"]:
        print(note)
    table = Table()
    for column in ("organisation", "training rows", "test rows"):
        table.add_column(column, justify="left" if column == "organisation" else "right")
    for name, rows in result["num_rows"].items():
        table.add_row(name, str(rows["train"]), str(rows["test"]))
    table.add_row("samples", *(str(num) for num in result["num_samples"].values()), style="bold")
    Console().print(table)
    print("run them with:")
    for command in result["commands"]:
        print(f"  {command}")
