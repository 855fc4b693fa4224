"""What a coordinator demands of a client, checked before the client acts on it.

A coordinator is not trusted to have checked its own configuration. What it demands decides how
large messages may be, so a mistake in it must not get as far as the port for peers.
"""

from collections.abc import Sequence

from pydantic import ValidationError

from laser_vfl.core.alignment_purpose import Scheme
from laser_vfl.core.errors import ContractError, printable, quoted
from laser_vfl.core.settings import MAX_SEED
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.federation_terms import is_roster, unfit_setting
from laser_vfl.v1 import coordinator_pb2 as pb

_HINT = "ask who runs the coordinator; this client stays as it is"


def read_roster(names: Sequence[str], me: str) -> tuple[str, ...]:
    """Return the roster; it has each client once, and this one among them."""
    if not is_roster(names):
        raise ContractError("the coordinator's roster is no list of clients", hint=_HINT)
    if me not in names:
        raise ContractError(f"the coordinator's roster is without {me}", hint=_HINT)
    return tuple(names)


def read_settings(message: pb.TrainingSettings, num_clients: int) -> TrainingSettings:
    """Return the training settings; every one is allowed, and they go together."""
    told = {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
    try:
        settings = TrainingSettings.model_validate(told)
    except ValidationError as error:
        key = str(next(iter(error.errors()[0]["loc"]), "training"))
        raise _unfit(key, f"{quoted(str(told.get(key)))} is not allowed") from None
    if unfit := unfit_setting(settings, num_clients):
        raise _unfit(unfit.setting, unfit.why)
    return settings


def read_scheme(text: str) -> Scheme:
    """Return how ids are compared."""
    if text == "hmac":
        return "hmac"
    if text == "ecdh":
        return "ecdh"
    raise ContractError(f"the coordinator compares ids by {quoted(text)}", hint=_HINT)


def check_seed(seed: int) -> None:
    """Refuse a seed that no run can have."""
    if seed > MAX_SEED:
        raise ContractError(f"the coordinator says seed {seed}", hint=_HINT)


def _unfit(setting: str, why: str) -> ContractError:
    return ContractError(
        f"the coordinator's training settings cannot be used: {setting}: {printable(why)}",
        hint=_HINT,
    )
