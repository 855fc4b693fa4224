"""A head dies in the middle of a masked step: no mask of its pairs is left in anybody's sum."""

from harness import Site, eventually
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
        training={"masked_gradients": True},
        slow=True,
    ) as trial:
        assert trial.clients["shop"].wait_exit() == -9
        assert flag.exists()
        trial.wait_generation("bank", 2)
        trial.clients["bank"].wait_for("take part; bank, telco, clinic take part now")
        trial.inject(Fault("start", "shop"))
        eventually(
            lambda: any(isinstance(entry, Loaded) for entry in trial.log("shop")), "shop is back"
        )
        trial.wait_generation("shop", 3)
        trial.site.hurry()
        trial.finish()
        assert trial.generations("bank") == [1, 2, 3]
        trial.check()
