"""A head dies in the middle of a masked step: no mask of its pairs is left in anybody's sum."""

from harness import Site
from trial import Fault, Trial

from laser_vfl.core.history import Loaded

ROSTER = ("bank", "shop", "telco", "clinic")


def test_killed_between_representation_and_masked_gradient(site: Site) -> None:
    """The others have masked with its key, and it has not; then it is back under a new key."""
    flag = site.path / "it-has-died"
    head = {"fusion": "fault_models:mortal_head", "fusion_options": {"at": 40, "flag": str(flag)}}
    with Trial(
        site,
        ROSTER,
        models={"shop": head},
        labels={"telco": None},
        training={"masked_gradients": True, "step_timeout_s": 20.0},
        slow=True,
    ) as trial:
        assert trial.clients["shop"].wait_exit() == -9
        assert flag.exists()
        trial.wait_generation("bank", 2)
        trial.inject(Fault("start", "shop"))
        trial.wait_back("shop")
        assert any(isinstance(entry, Loaded) for entry in trial.log("shop"))
        trial.site.hurry()
        trial.finish()
        assert trial.generations("bank") == [1, 2, 3]
        trial.check()
