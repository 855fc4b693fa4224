"""On PYTHONPATH it makes the wall clock of Python processes jump by up to a day, back and forth."""

import random
import sys
import time

DAY_S = 86_400.0

_real, _rng = time.time, random.Random()


def _jumping() -> float:
    """Return a time within a day of now; gRPC alone, which waits by the real clock, gets that."""
    if sys._getframe(1).f_globals.get("__name__", "").startswith("grpc."):
        return _real()
    return _real() + _rng.uniform(-DAY_S, DAY_S)


time.time = _jumping
