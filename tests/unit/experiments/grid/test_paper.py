"""The paper's values: all that its two tables have, and nothing else."""

from itertools import product

import pytest

from laser_vfl.experiments.grid.case import PMiss
from laser_vfl.experiments.grid.paper import paper_value, paper_values
from laser_vfl.experiments.report.cells import CellPosition, Value

BASELINES = ("local", "standard", "ensemble", "combinatorial", "plug", "laser")
PS: tuple[PMiss, ...] = (0.0, 0.1, 0.5)


def test_both_tables_are_complete():
    expected = set(product(("hapt", "credit", "mimic4", "cifar10", "cifar100"), BASELINES, PS, PS))
    expected |= set(product(("hapt", "credit"), ("vfedtrans",), PS, PS))
    expected |= set(product(("cifar10",), BASELINES, ("beta",), (*PS, "beta")))
    assert set(paper_values()) == expected


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("hapt", "local", 0.0, 0.0), (82.3, 0.4)),
        (("hapt", "laser", 0.5, 0.5), (84.8, 2.6)),
        (("hapt", "vfedtrans", 0.1, 0.5), (82.8, 0.7)),
        (("credit", "ensemble", 0.5, 0.0), (42.4, 2.1)),
        (("mimic4", "combinatorial", 0.1, 0.1), (86.7, 1.4)),
        (("cifar10", "standard", 0.0, 0.1), (60.5, 12.1)),
        (("cifar100", "standard", 0.0, 0.5), (2.4, 2.9)),
        (("cifar100", "laser", 0.5, 0.5), (51.9, 1.2)),
        (("cifar10", "plug", "beta", "beta"), (77.1, 0.1)),
        (("cifar10", "laser", "beta", 0.0), (88.8, 1.4)),
    ],
)
def test_values_are_those_in_print(place, value):
    assert paper_values()[place] == Value(*value)


def test_scores_are_between_0_and_100():
    assert all(0 < value.mean < 100 and 0 < value.std < 20 for value in paper_values().values())


def test_the_paper_says_nothing_of_variants_other_numbers_of_clients_and_our_own_method():
    place = CellPosition("hapt", "laser", "", 4, 0.0, 0.0)
    assert paper_value(place)
    assert paper_value(place._replace(variant="mixed")) is None
    assert paper_value(place._replace(num_clients=5)) is None
    assert paper_value(place._replace(method="laser-mixed")) is None
    assert paper_value(place._replace(dataset="icu")) is None
