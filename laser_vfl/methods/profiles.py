"""Facts about each method; without torch, because coordinators read them."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from laser_vfl.core.subsets import MAX_CLIENTS

MethodName = Literal["laser", "local", "standard", "ensemble", "combinatorial", "plug", "vfedtrans"]

DEFAULT_METHOD: Final[MethodName] = "laser"


@dataclass(frozen=True)
class MethodProfile:
    """The facts about a method that its users ask for."""

    name: MethodName
    title: str
    """What it is called in print."""
    num_clients: tuple[int, int] = (1, MAX_CLIENTS)
    """The fewest and the most clients that it works with."""
    why_not: str = ""
    """What is said of any other number, `{num_clients}` or `{num_subsets}` in it."""
    otherwise: str = ""
    """What to do then."""
    masks_gradients: bool = False
    """Whether `masked_gradients` can be used with it."""
    shares_pair_keys: bool = False
    """Whether clients need keys in pairs, with masked gradients or without."""
    needs_exact_rows: bool = False
    """Whether clients exchange rows that must not be rounded to small integers."""
    has_model_per_subset: bool = False
    """Whether a client has a representation for each subset that it is in."""
    needs_all_blocks: bool = False
    """Whether a sample that lacks a block is only guessed."""
    grows_with_pairs: bool = False
    """Whether it has models for each pair of clients."""
    relative_cost: float = 1.0
    """Of a training run with four clients, in runs of the cheapest methods."""

    most_scaled: int | None = None
    """With how many clients at most `experiment scaling` runs it by itself; None for any number."""

    def refusal(self, num_clients: int) -> tuple[str, str] | None:
        """Return why it does not work with so many clients, and what to do; None if it does."""
        fewest, most = self.num_clients
        if fewest <= num_clients <= most:
            return None
        why = self.why_not.format(num_clients=num_clients, num_subsets=2**num_clients - 1)
        return why, self.otherwise

    def num_exchanged(self, num_clients: int) -> int:
        """Return how many representations of a sample one client sends another, side by side."""
        return 2 ** max(num_clients - 2, 0) if self.has_model_per_subset else 1


_MAX_COMBINED = 10

PROFILES: Final[dict[str, MethodProfile]] = {
    profile.name: profile
    for profile in (
        MethodProfile("local", "Local"),
        MethodProfile("standard", "Standard VFL", needs_all_blocks=True, relative_cost=0.7),
        MethodProfile(
            "vfedtrans",
            "VFedTrans",
            num_clients=(2, MAX_CLIENTS),
            why_not="vfedtrans learns from pairs of clients, and there is one client",
            otherwise="use method: local",
            shares_pair_keys=True,
            needs_exact_rows=True,
            grows_with_pairs=True,
            relative_cost=6.0,
        ),
        MethodProfile("ensemble", "Ensemble"),
        MethodProfile(
            "combinatorial",
            "Combinatorial",
            num_clients=(1, _MAX_COMBINED),
            why_not="{num_clients} clients would have {num_subsets} predictors",
            otherwise=f"use another method, or at most {_MAX_COMBINED} clients",
            has_model_per_subset=True,
            relative_cost=4.0,
            most_scaled=7,
        ),
        MethodProfile("plug", "PlugVFL"),
        MethodProfile("laser", "LASER-VFL", masks_gradients=True),
    )
}
"""By name, in the order of the paper's tables."""

assert PROFILES.keys() == set(get_args(MethodName))
