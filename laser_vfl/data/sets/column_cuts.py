"""Tables cut into equal, consecutive runs of columns, as in the paper."""

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.sets.dataset import Blocks, Samples


def equal_runs(num_features: int, num_clients: int) -> list[slice]:
    """Return the columns of each client; those beyond a multiple of the clients are left out."""
    check_num_clients(num_clients, num_features)
    width = num_features // num_clients
    return [slice(k * width, (k + 1) * width) for k in range(num_clients)]


def spread(num_features: int, num_clients: int) -> list[npt.NDArray[np.intp]]:
    """Return all columns in K parts that differ by one at most; few columns go round in turn."""
    if num_features < num_clients:
        return [np.array([k % num_features]) for k in range(num_clients)]
    return np.array_split(np.arange(num_features), num_clients)


def column_blocks(train: Samples, test: Samples, num_clients: int) -> Blocks:
    """Cut a table (n, features); the values are not scaled, which is done in training."""
    runs = equal_runs(train.features.shape[1], num_clients)
    return Blocks([train.features[:, run] for run in runs], [test.features[:, run] for run in runs])


def check_num_clients(num_clients: int, most: int) -> None:
    """Refuse a number of clients for which this data has no blocks."""
    if not 1 <= num_clients <= most:
        raise ConfigError(
            f"this data cannot be cut into {num_clients} blocks",
            hint=f"use 1 to {most} clients",
        )
