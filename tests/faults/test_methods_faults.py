"""Clients die under other methods than LASER-VFL: the others go on, or have nothing left to do."""

import pytest

from laser_vfl.core.errors import NotReady
from laser_vfl.core.subsets import has
from laser_vfl.core.training.applied_steps import Loaded
from tests.support.daemons.harness import Site
from tests.support.trials.faults import Fault
from tests.support.trials.trial import LONG, Trial


def test_combinations_without_a_client_go_on_being_trained(site: Site) -> None:
    """Telco has no labels. Predictors of subsets with it stay as they were when it died."""
    dies = Fault("dies before its representation", "telco", after=("telco", 12))
    training = {"method": "combinatorial", "epochs": 5, **LONG}
    with Trial(site, faults=[dies], labels={"telco": None}, training=training) as trial:
        assert trial.clients["telco"].wait_exit() == -9
        trial.finish()
        assert trial.last_step("telco") == 12
        assert trial.generations("bank") == trial.generations("shop") == [1, 2]
        trial.check("bank", "shop")


@pytest.mark.parametrize("method", ["plug", "standard"])
def test_without_the_active_party_the_rest_of_a_run_is_empty(method: str, site: Site) -> None:
    """The others count the remaining steps as done; it takes what it has when it is back."""
    dies = Fault("dies before its gradient", "bank", after=("bank", 38))
    with Trial(site, faults=[dies], training={"method": method, **LONG}) as trial:
        assert trial.clients["bank"].wait_exit() == -9
        trial.finish("shop", "telco")
        for name in ("shop", "telco"):
            assert trial.last_step(name) == trial.last_step("bank") == 38
            trial.clients[name].wait_for("the remaining steps change nothing")
        trial.inject(Fault("start", "bank"))
        trial.finish("bank")
        oracle = trial.check()
        assert any(isinstance(entry, Loaded) for entry in trial.log("bank"))
        assert not has(oracle.heads, 1)
        with trial.clients["bank"].predictor() as predictor:
            ids = list(oracle.blocks[0].test.ids)  # type: ignore[union-attr]
            assert predictor.predict(ids).errors == (None,) * len(ids)
        with (
            trial.clients["shop"].predictor() as predictor,
            pytest.raises(NotReady),
        ):
            predictor.predict(["person-00001"])
    assert "Traceback" not in site.report()
