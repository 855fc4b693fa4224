"""LASER-VFL: vertical federated learning when blocks of features are missing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from laser_vfl.core.release import __version__

if TYPE_CHECKING:
    from laser_vfl.client.python_api import Client
    from laser_vfl.remote.predictor import Predictor
    from laser_vfl.simulation import Simulation, simulate

__all__ = ["Client", "Predictor", "Simulation", "__version__", "simulate"]

_ROOMS = {
    "Client": "laser_vfl.client.python_api",
    "Predictor": "laser_vfl.remote.predictor",
    "Simulation": "laser_vfl.simulation",
    "simulate": "laser_vfl.simulation",
}


def __getattr__(name: str) -> Any:
    """Import what is heavy only when it is asked for; some of it needs torch."""
    if name in _ROOMS:
        return getattr(import_module(_ROOMS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
