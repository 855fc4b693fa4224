"""What the noise on a client's representations and labels guarantees, as an ε.

The ε of labels is the configured one. The ε of representations is about the features of one person,
given the parameters: it limits how well the noisy rows tell those features from any others. Two
clipped rows are at most 2 · clip apart, whatever the features, so noise of standard deviation
noise · clip counts for half of `noise`. This assumes that a person's features change that person's
row alone; `check_noise` of `model_building.py` refuses models with batch norm.
"""

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from laser_vfl.client.config import ClientConfig, PrivacyConfig
from laser_vfl.core.errors import ConfigError

LEAST_NOISE = 1e-100
"""Less is none: its ε is beyond all floats."""


def check_accountant(config: ClientConfig) -> None:
    """Refuse noise whose ε cannot be computed here."""
    if config.privacy.noise and not _has_accountant():
        raise _no_accountant(config.where("privacy.noise"))


def epsilon(noise: float, num_releases: int, delta: float) -> float:
    """Return the ε of so many releases of one person's representation, noise each time anew.

    It is computed by Rényi divergences, which are a few percent above the best possible ε. Sampling
    of batches does not make it smaller: peers know who is in a batch.
    """
    return epsilon_of({noise: num_releases}, delta)


def num_releases_of(num_epochs: int) -> int:
    """Return how often a run releases the representation of a person in the training table.

    That is once an epoch, and once more in serving, where a repeated question gets the same noise.
    """
    return num_epochs + 1


def epsilon_of(releases: Mapping[float, int], delta: float) -> float:
    """Return the ε of releases with different noise, given how many there are of each.

    Rényi divergences of Gaussian noise add up, also where a later release is chosen by what was
    seen of the earlier ones, as the parameters of a second run are. So runs are added up as
    divergences, and ε is taken of the sum: that is less than the sum of their ε.
    """
    if not _has_accountant():
        raise _no_accountant()
    if min(releases) < LEAST_NOISE:
        return math.inf
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    for noise, num_releases in sorted(releases.items()):
        accountant.compose(GaussianDpEvent(noise / 2), num_releases)
    return float(accountant.get_epsilon(delta))


def budget(privacy: PrivacyConfig, num_epochs: int) -> dict[str, Any] | None:
    """Return what a model's manifest says of its privacy; None where nothing is done for it.

    The representation of a person in the test table is released twice.
    """
    made: dict[str, Any] = {}
    if privacy.labels is not None:
        made["labels"] = {"epsilon": privacy.labels.epsilon}
    if privacy.clip is None:
        return made or None
    made |= {"clip": privacy.clip, "noise": privacy.noise}
    if privacy.noise:
        num_releases = num_releases_of(num_epochs)
        made |= {
            "delta": privacy.delta,
            "num_releases": num_releases,
            "epsilon_per_release": epsilon(privacy.noise, 1, privacy.delta),
            "epsilon": epsilon(privacy.noise, num_releases, privacy.delta),
        }
    return made


def _has_accountant() -> bool:
    return find_spec("dp_accounting") is not None


def _no_accountant(where: str = "") -> ConfigError:
    return ConfigError(
        "the package dp-accounting, which says what noise is worth, is not installed",
        where=where,
        hint="install laser-vfl[privacy]",
    )
