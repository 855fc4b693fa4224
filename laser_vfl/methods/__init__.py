"""The methods of the paper, each as what it does otherwise than LASER-VFL."""

from laser_vfl.core.method import Method
from laser_vfl.core.settings import MethodName
from laser_vfl.methods.combinatorial import Combinatorial
from laser_vfl.methods.ensemble import Ensemble
from laser_vfl.methods.laser import Laser
from laser_vfl.methods.local import Local
from laser_vfl.methods.plug import Plug
from laser_vfl.methods.standard import Standard

METHODS: dict[MethodName, type[Method]] = {
    "laser": Laser,
    "local": Local,
    "standard": Standard,
    "ensemble": Ensemble,
    "combinatorial": Combinatorial,
    "plug": Plug,
}


def method_named(name: MethodName) -> Method:
    """Return the method that `training.method` names."""
    return METHODS[name]()
