"""On PYTHONPATH it makes the wall clock of Python processes jump by up to a day, back and forth."""

import random
import time

DAY_S = 86_400.0

_real, _rng = time.time, random.Random()


def _jumping() -> float:
    return _real() + _rng.uniform(-DAY_S, DAY_S)


time.time = _jumping
