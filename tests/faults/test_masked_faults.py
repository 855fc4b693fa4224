"""A head dies in the middle of a masked step: no mask of its pairs is left in anybody's sum."""

from laser_vfl.core.training.applied_steps import Loaded
from tests.support.daemons.harness import Site
from tests.support.trials.faults import Fault
from tests.support.trials.trial import LONG, Trial

ROSTER = ("bank", "shop", "telco", "clinic")


def test_killed_between_representation_and_masked_gradient(site: Site) -> None:
    """The others have masked with its key, and it has not; then it is back under a new key."""
    with Trial(
        site,
        ROSTER,
        faults=[Fault("dies before its gradient", "shop", after=("shop", 38))],
        labels={"telco": None},
        training={"masked_gradients": True, **LONG},
        slow=True,
    ) as trial:
        assert trial.clients["shop"].wait_exit() == -9
        trial.wait_generation("bank", 2)
        trial.clients["bank"].wait_for("take part; bank, telco, clinic take part now")
        trial.inject(Fault("start", "shop"))
        trial.wait_back("shop")
        assert any(isinstance(entry, Loaded) for entry in trial.log("shop"))
        trial.site.hurry()
        trial.finish()
        assert trial.generations("bank") == [1, 2, 3]
        trial.check()
