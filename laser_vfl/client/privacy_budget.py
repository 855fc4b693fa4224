"""How much the noise on a client's representations promises, as an ε.

It is about the features of one person, given the parameters: who sees the noisy rows can tell those
features from any others only that well. Any features at all make a clipped row, and two such rows
are at most 2 · clip apart, so noise of standard deviation noise · clip counts for half of `noise`.
That presumes that a person's features change that person's row alone; `block.check_noise` refuses
models with batch norm.
"""

from importlib.util import find_spec
from typing import Any

from laser_vfl.client.config import ClientConfig, PrivacyConfig
from laser_vfl.core.errors import ConfigError


def check_accountant(config: ClientConfig) -> None:
    """Refuse noise of which nobody could say what it is worth."""
    if config.privacy.noise and not _has_accountant():
        raise _no_accountant(config.where("privacy.noise"))


def epsilon(noise: float, num_releases: int, delta: float) -> float:
    """Return the ε of so many releases of one person's representation, noise each time anew.

    It is computed by Rényi divergences, which are a few percent above the best possible ε. That not
    everybody is in every batch does not count: peers know who is.
    """
    if not _has_accountant():
        raise _no_accountant()
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    accountant.compose(GaussianDpEvent(noise / 2), num_releases)
    return float(accountant.get_epsilon(delta))


def budget(privacy: PrivacyConfig, num_epochs: int) -> dict[str, Any] | None:
    """Return what a model's manifest says of its privacy; None where nothing is done for it.

    A person in the training table is let out once an epoch, and once more in serving, where asking
    again tells nothing new. One in the test table is let out twice.
    """
    if privacy.clip is None:
        return None
    made: dict[str, Any] = {"clip": privacy.clip, "noise": privacy.noise}
    if privacy.noise:
        num_releases = num_epochs + 1
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
