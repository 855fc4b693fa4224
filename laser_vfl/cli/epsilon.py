"""`epsilon`: the privacy loss of noise on representations, before anybody trains with it."""

import json

from laser_vfl.client.privacy_budget import epsilon


def print_epsilon(noise: float, num_releases: int, delta: float, *, as_json: bool) -> None:
    """Compute and print."""
    found = {
        "noise": noise,
        "delta": delta,
        "num_releases": num_releases,
        "epsilon_per_release": epsilon(noise, 1, delta),
        "epsilon": epsilon(noise, num_releases, delta),
    }
    if as_json:
        print(json.dumps(found))
        return
    for num, key in ((1, "epsilon_per_release"), (num_releases, "epsilon")):
        print(f"releases {num:<6} epsilon {found[key]:<10.4g} delta {delta:g}")
