"""Which settings and rosters a federation can have: the same rules for all who read them.

A coordinator applies them to its configuration. A client applies them to what a coordinator says,
before it acts on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from laser_vfl.config.field_types import is_name
from laser_vfl.core.subsets import MAX_CLIENTS
from laser_vfl.methods.profiles import PROFILES
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.message_limits import frames_together, longest_row
from laser_vfl.transport.protocol import MAX_TENSOR_BYTES


@dataclass(frozen=True)
class UnfitTerm:
    """What is wrong with a setting, and what to do about it."""

    setting: str
    why: str
    hint: str


def unfit_setting(settings: TrainingSettings, num_clients: int) -> UnfitTerm | None:
    """Return which setting does not go with the others, or with so many clients."""
    profile = settings.profile
    if settings.masked_gradients and not profile.masks_gradients:
        masking = [each.name for each in PROFILES.values() if each.masks_gradients]
        return UnfitTerm(
            "masked_gradients",
            f"gradients are not masked with method: {profile.name}",
            f"leave it out, or use method: {' or '.join(masking)}",
        )
    if refusal := settings.rounding_refusal:
        return UnfitTerm("wire_precision", *refusal)
    if refusal := profile.refusal(num_clients):
        return UnfitTerm("method", *refusal)
    width = settings.exchanged_width(num_clients)
    largest = MAX_TENSOR_BYTES // longest_row(settings, num_clients) // frames_together(settings)
    if settings.batch_size > largest:
        return UnfitTerm(
            "batch_size",
            f"expected at most {largest} with rows {width} wide, got {settings.batch_size}",
            "lower it: a frame holds one batch, and what travels together, with a pipeline two of "
            "them, is limited to 64 MiB",
        )
    return None


def is_roster(names: Sequence[str]) -> bool:
    """Whether these could be all clients of a federation, in the order of its roster."""
    is_long_enough = 1 <= len(names) <= MAX_CLIENTS
    return is_long_enough and len(set(names)) == len(names) and all(map(is_name, names))
