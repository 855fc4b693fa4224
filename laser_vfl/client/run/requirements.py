"""This client's requirements, checked against the coordinator's settings before a run."""

from collections.abc import Iterator
from dataclasses import dataclass

from laser_vfl.client.config import ClientConfig
from laser_vfl.core.errors import MismatchError
from laser_vfl.methods.training_settings import TrainingSettings


@dataclass(frozen=True)
class _Difference:
    """A requirement that the coordinator does not meet."""

    required: str
    """The key of this client's file."""
    message: str
    elsewhere: str
    """What the coordinator's file would have to say."""


def check_required(
    config: ClientConfig, settings: TrainingSettings, scheme: str, roster: tuple[str, ...]
) -> None:
    """Raise unless a run with these settings, with these clients, is what the file allows."""
    found = list(_differences(config, settings, scheme, roster))
    if not found:
        return
    first = found[0]
    keys = " and ".join(difference.required for difference in found)
    raise MismatchError(
        "; ".join(difference.message for difference in found),
        where=config.where(first.required),
        hint="nothing has left this client. Have the coordinator's file say "
        f"{', '.join(difference.elsewhere for difference in found)}; or, if that is agreed, "
        f"change {keys} here",
    )


def required(config: ClientConfig) -> list[str]:
    """Return each thing that a file requires, in a few words."""
    require, named = config.require, []
    if require.masked_gradients:
        named.append("masked gradients")
    if require.alignment is not None:
        named.append(f"alignment: {require.alignment}")
    if require.max_epochs is not None:
        named.append(f"at most {require.max_epochs} epochs a run")
    if require.wire_precision is not None:
        named.append(f"wire precision {' or '.join(require.wire_precision)}")
    if config.required_roster is not None:
        named.append(f"the roster {', '.join(config.required_roster[1])}")
    return named


def _differences(
    config: ClientConfig, settings: TrainingSettings, scheme: str, roster: tuple[str, ...]
) -> Iterator[_Difference]:
    require = config.require
    if config.required_roster is not None and config.required_roster[1] != roster:
        key, names = config.required_roster
        yield _Difference(
            key,
            f"the coordinator's clients are {', '.join(roster)}, and this client requires "
            f"{', '.join(names)}",
            f"clients: [{', '.join(names)}]",
        )
    if require.alignment not in (None, scheme):
        yield _Difference(
            "require.alignment",
            f"the coordinator says alignment: {scheme}, and this client requires "
            f"{require.alignment}",
            f"alignment: {require.alignment}",
        )
    if require.masked_gradients and not settings.masked_gradients:
        yield _Difference(
            "require.masked_gradients",
            "the coordinator says training.masked_gradients: false, and this client requires true",
            "training.masked_gradients: true",
        )
    if require.max_epochs is not None and settings.epochs > require.max_epochs:
        yield _Difference(
            "require.max_epochs",
            f"the coordinator says training.epochs: {settings.epochs}, and this client requires "
            f"at most {require.max_epochs}",
            f"training.epochs: {require.max_epochs}",
        )
    precisions = require.wire_precision
    if precisions is not None and settings.wire_precision not in precisions:
        yield _Difference(
            "require.wire_precision",
            f"the coordinator says training.wire_precision: {settings.wire_precision}, and this "
            f"client requires {' or '.join(precisions)}",
            f"training.wire_precision: {precisions[0]}",
        )
