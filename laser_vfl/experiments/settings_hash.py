"""Whether two runs had equal settings: the hash that is kept beside each score."""

from laser_vfl.experiments.case import Case, hash_of


def settings_hash(case: Case) -> str:
    """Return the hash of what a run's YAML settings come to, with its changes."""
    return hash_of({"changes": dict(case.changes)})
