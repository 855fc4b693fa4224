"""The methods by the names that `training.method` has for them."""

from typing import Final

from laser_vfl.core.method import Method
from laser_vfl.methods.combinatorial import Combinatorial
from laser_vfl.methods.ensemble import Ensemble
from laser_vfl.methods.laser import Laser
from laser_vfl.methods.local import Local
from laser_vfl.methods.plug import Plug
from laser_vfl.methods.profiles import PROFILES
from laser_vfl.methods.standard import Standard
from laser_vfl.methods.vfedtrans.method import VFedTrans

METHODS: Final[dict[str, Method]] = {
    "laser": Laser(),
    "local": Local(),
    "standard": Standard(),
    "ensemble": Ensemble(),
    "combinatorial": Combinatorial(),
    "plug": Plug(),
    "vfedtrans": VFedTrans(),
}

assert METHODS.keys() == PROFILES.keys()


def method_named(name: str) -> Method:
    """Return the method that `training.method` names."""
    return METHODS[name]
