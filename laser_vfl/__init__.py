"""LASER-VFL: vertical federated learning when blocks of features are missing."""

from typing import TYPE_CHECKING, Any

from laser_vfl.core.release import __version__

if TYPE_CHECKING:
    from laser_vfl.simulation import Simulation, simulate

__all__ = ["Simulation", "__version__", "simulate"]


def __getattr__(name: str) -> Any:
    """Import what needs torch only when it is asked for."""
    if name in ("Simulation", "simulate"):
        from laser_vfl import simulation

        return getattr(simulation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
