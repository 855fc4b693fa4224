"""What the oracle's engine makes of a case: who has which labels, and whose classes are scored."""

import numpy as np
import pytest

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.sets.column_cuts import column_blocks
from laser_vfl.data.sets.dataset import DataSet, Samples
from laser_vfl.experiments.engines import in_process_engine as engine
from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.grid.experiment_settings import DataChoices
from laser_vfl.experiments.grid.label_sets import labels_of

ROSTER = ("bank", "shop", "telco", "clinic")


@pytest.mark.parametrize("method", ["laser", "local", "combinatorial"])
def test_who_has_never_seen_a_class_is_scored_for_those_that_it_knows(monkeypatch, method):
    """The bank's head has two outputs, for the classes 1 and 2."""
    draw = np.random.default_rng(0)
    labels = np.tile([0, 1, 2], 60)
    centres = 4 * draw.normal(size=(3, 8))
    rows = (centres[labels] + draw.normal(size=(180, 8))).astype(np.float32)
    samples = Samples(rows, labels)
    made_up = DataSet("digits", "multiclass", "accuracy", 3, samples, samples, (), column_blocks)
    monkeypatch.setattr(engine, "_load", lambda name, data: made_up)

    def observed(num, num_clients, p_miss, *, seed, table, together):
        seen = np.ones((num, num_clients), dtype=bool)
        seen[labels == 0, 0] = False
        return seen

    monkeypatch.setattr(engine, "observed_blocks", observed)
    case = Case("digits", method, 0.0, (0.0,), 0, changes=(("training.epochs", 20),))
    (result,) = engine.run_case(case)
    assert min(result["by_client"].values()) > 0.9


def test_labels_at_some():
    labels = np.array([0, 1])
    found = labels_of("hapt", labels, ROSTER, DataChoices(labels_at="shop, clinic"))
    assert list(found) == ["shop", "clinic"]
    with pytest.raises(ConfigError, match='there is no "nobody"'):
        labels_of("hapt", labels, ROSTER, DataChoices(labels_at="shop,nobody"))
