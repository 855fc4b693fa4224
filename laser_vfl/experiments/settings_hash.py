"""Whether two runs had equal settings: the hash that is kept beside each score."""

from dataclasses import asdict
from functools import lru_cache
from typing import Any

from laser_vfl.experiments.case import Case, PMiss, hash_of
from laser_vfl.experiments.settings import settings_for


def settings_hash(case: Case) -> str:
    """Return the hash of a run's YAML settings and of what is changed in them."""
    settings = _settings(case.dataset, case.method, case.p_train, case.num_clients)
    return hash_of({"settings": settings, "changes": dict(case.changes)})


@lru_cache(1024)
def _settings(dataset: str, method: str, p_train: PMiss, num_clients: int) -> dict[str, Any]:
    return asdict(settings_for(dataset, method, p_train=p_train, num_clients=num_clients))
