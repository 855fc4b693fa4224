"""What cannot be run is refused before anything runs."""

from dataclasses import replace

import pytest

from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.engines.engine_registry import check_engine
from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.grid.checking import check_case

CASE = Case("digits", "laser", 0.0, (0.0, 0.5), 0)


@pytest.mark.parametrize("engine", ["oracle", "stacked", "grpc"])
@pytest.mark.parametrize("dataset", ["digits", "hapt", "credit"])
def test_what_can_be_run_is_not_refused(dataset, engine):
    check_case(replace(CASE, dataset=dataset), engine)


@pytest.mark.parametrize(
    ("engine", "differs", "change", "said"),
    [
        ("oracle", {}, ("training.method", "plug"), "training.method has an option; use --methods"),
        ("oracle", {}, ("training.seed", 3), "training.seed has an option; use --seeds"),
        ("oracle", {}, ("model.representation", "no"), 'unknown representation model "no"'),
        ("oracle", {}, ("model.fusion", "no"), 'unknown fusion model "no"'),
        ("oracle", {}, ("data.labels_at", "nobody"), 'there is no "nobody"'),
        ("oracle", {}, ("data.augment", 2), "digits has none"),
        ("oracle", {"dataset": "credit"}, ("data.tasks", "split"), "no second set of labels"),
        ("oracle", {"num_clients": 1}, ("data.tasks", "split"), "two label sets take two clients"),
        ("oracle", {"num_clients": 1, "method": "vfedtrans"}, None, "there is one client"),
        ("stacked", {"dataset": "icu"}, None, "cannot train the lstm models of icu"),
        ("stacked", {}, ("data.tasks", "split"), "cannot train the two label sets"),
        ("grpc", {}, ("data.max_train", 5), "takes no data.max_train"),
        ("grpc", {"method": "standard"}, None, "only where no block is missing"),
    ],
)
def test_what_cannot_be_run_is_told(engine, differs, change, said):
    case = replace(CASE, **differs, changes=(change,) if change else ())
    with pytest.raises(ConfigError, match=said):
        check_case(case, engine)


def test_an_engine_that_cannot_be_imported_is_refused():
    with pytest.raises(ConfigError, match="cannot be imported"):
        check_engine("no_such_module:run")
