"""A data set as files and configurations of a federation whose clients hold a block each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import BaseModel, ValidationError

from laser_vfl.client.config import ClientConfig
from laser_vfl.config.key_positions import KeyPositions
from laser_vfl.config.validation_errors import first_problem
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data.missing import TABLES, PMiss, TableName, observed_blocks
from laser_vfl.data.sets import DataSet, load_set, source_of
from laser_vfl.data.sets.dataset import ORGANISATIONS
from laser_vfl.experiments.grid.experiment_settings import settings_for
from laser_vfl.experiments.grid.names import profile_of
from laser_vfl.local_federation import use_new_directory

PORT = 7000  # of the coordinator; clients have the next ones, and 100 more for predictions
ID, BLOCK, LABEL = "sample", "block", "label"

Configs = dict[str, dict[str, Any]]
Observed = Mapping[TableName, npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class PrepareOptions:
    """Which data set to cut into blocks, for whom, and which blocks are missing."""

    dataset: str
    out: Path
    clients: int
    p_miss: PMiss
    p_miss_test: PMiss
    method: str
    seed: int
    insecure: bool
    root: Path | None

    @property
    def names(self) -> tuple[str, ...]:
        """The organisations, one for each client."""
        return ORGANISATIONS[: self.clients]


def prepare(options: PrepareOptions) -> dict[str, Any]:
    """Write tables and configurations to a new directory; return what was written."""
    # Wrong options are reported before data is read, which may take long.
    _observed(options, dict.fromkeys(TABLES, 1))
    configs = _configs(options)
    data = load_set(options.dataset, options.root)
    sizes: dict[TableName, int] = {"train": len(data.train), "test": len(data.test)}
    observed = _observed(options, sizes)
    _check_rows(options, observed)
    use_new_directory(options.out, "--out")
    try:
        _write_tables(options, data, observed)
        for name, config in configs.items():
            text = yaml.safe_dump(config, sort_keys=False, default_flow_style=None)
            (options.out / f"{name}.yaml").write_text(text)
    except OSError as error:
        raise DataError(
            f"cannot be written ({error.strerror})",
            hint="give --out another directory",
            where=str(options.out),
        ) from None
    rows = {
        name: {table: int(observed[table][:, k].sum()) for table in TABLES}
        for k, name in enumerate(options.names)
    }
    return {
        "dataset": data.name,
        "method": options.method,
        "out": str(options.out),
        "num_samples": sizes,
        "num_rows": rows,
        "notes": list(data.notes),
    }


def _observed(options: PrepareOptions, sizes: Mapping[TableName, int]) -> Observed:
    probabilities = {"train": options.p_miss, "test": options.p_miss_test}
    return {
        table: observed_blocks(
            num, options.clients, probabilities[table], seed=options.seed, table=table
        )
        for table, num in sizes.items()
    }


def _check_rows(options: PrepareOptions, observed: Observed) -> None:
    for table in TABLES:
        for k, name in enumerate(options.names):
            if not observed[table][:, k].any():
                raise ConfigError(
                    f"{name} would have no {table} rows",
                    hint="lower --p-miss, or choose another --seed",
                )


def _write_tables(options: PrepareOptions, data: DataSet, observed: Observed) -> None:
    """Write each organisation's rows: those samples whose block it has."""
    blocks = data.blocks(options.clients)
    first_id = 0
    for table in TABLES:
        samples = data.train if table == "train" else data.test
        of_clients = blocks.train if table == "train" else blocks.test
        for k, name in enumerate(options.names):
            rows = np.flatnonzero(observed[table][:, k])
            arrays: dict[str, npt.NDArray[Any]] = {
                ID: first_id + rows,
                BLOCK: of_clients[k][rows],
                LABEL: samples.labels[rows],
            }
            np.savez(options.out / f"{name}_{table}.npz", allow_pickle=False, **arrays)
        first_id += len(samples)


def _configs(options: PrepareOptions) -> Configs:
    """Return the coordinator's configuration and the clients', checked as the daemons will."""
    source = source_of(options.dataset)
    settings = settings_for(
        source.name, options.method, p_train=options.p_miss, num_clients=options.clients
    )
    coordinator = {
        "federation": source.name,
        "listen": f"127.0.0.1:{PORT}",
        "state": "./coordinator-state",
        "clients": list(options.names),
        "training": {
            "method": profile_of(options.method).name,
            **settings.training,
            "seed": options.seed,
        },
        **_tls(options, "coordinator"),
    }
    configs = {"coordinator": coordinator}
    for place, name in enumerate(options.names, start=1):
        address = f"127.0.0.1:{PORT + place}"
        tables = {"train": f"{name}_train.npz", "test": f"{name}_test.npz"}
        configs[name] = {
            "federation": source.name,
            "name": name,
            "listen": address,
            "advertise": address,
            "predict_listen": f"127.0.0.1:{PORT + 100 + place}",
            "coordinator": coordinator["listen"],
            "state": f"./{name}-state",
            "data": {
                **tables,
                "id": ID,
                "label": LABEL,
                "task": source.task,
                **settings.client_data,
            },
            "model": settings.client_model,
            "optimizer": settings.optimizer,
            **_tls(options, name),
        }
    for name, config in configs.items():
        _check(config, CoordinatorConfig if name == "coordinator" else ClientConfig)
    return configs


def _check(config: dict[str, Any], model: type[BaseModel]) -> None:
    try:
        model.model_validate(config)
    except ValidationError as error:
        raise first_problem(error, model, KeyPositions()) from None


def _tls(options: PrepareOptions, name: str) -> dict[str, Any]:
    if options.insecure:
        return {}
    files = {"ca": "certs/ca.pem", "cert": f"certs/{name}.pem", "key": f"certs/{name}.key"}
    return {"tls": files}
