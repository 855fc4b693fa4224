"""Where our order of two methods contradicts the paper's."""

import pytest

from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.report.cells import cells_of
from laser_vfl.experiments.report.orderings import contradictions
from tests.support.fakes.stand_in_engine import made_up


def cells(**scores):
    """Put scores of seeds at HAPT, p_train 0, p_test 0; the paper: laser 94.2, plug 91.1 ± 1.4."""
    lines = []
    for method, each in scores.items():
        for seed, score in enumerate(each):
            case = Case("hapt", method, 0.0, (0.0,), seed)
            lines.append({**made_up(case, 0.0), "score": score, "key": case.key()})
    return cells_of(lines)


def test_the_paper_s_own_order_is_no_contradiction():
    assert contradictions(cells(laser=[0.95, 0.94], plug=[0.92, 0.91])) == []


def test_the_other_way_round_and_clear_in_both():
    (found,) = contradictions(cells(laser=[0.90, 0.91], plug=[0.95, 0.96]))
    assert (found.better, found.worse) == ("plug", "laser")
    assert (found.is_clear_here, found.is_clear_in_paper) == (True, True)
    assert "PlugVFL 95.5 ± 0.7 is above LASER-VFL 90.5 ± 0.7" in str(found)
    assert "in the paper 91.1 ± 1.4 is below 94.2 ± 0.1 (clear in both)" in str(found)


@pytest.mark.parametrize(
    ("scores", "clear"),
    [
        # The paper has plug 91.1 ± 1.4 and ensemble 90.9 ± 0.9: not clear.
        ({"plug": [0.90, 0.90], "ensemble": [0.95, 0.95]}, (True, False)),
        ({"laser": [0.90, 0.94], "plug": [0.91, 0.95]}, (False, True)),
    ],
)
def test_clear_on_one_side_only(scores, clear):
    (found,) = contradictions(cells(**scores))
    assert (found.is_clear_here, found.is_clear_in_paper) == clear


def test_clear_on_neither_side_is_chance():
    assert contradictions(cells(plug=[0.90, 0.94], ensemble=[0.91, 0.94])) == []


def test_one_seed_is_judged_by_the_paper_s_deviation():
    (found,) = contradictions(cells(plug=[0.900], ensemble=[0.905, 0.905])) or [None]
    assert found is None
    (found,) = contradictions(cells(plug=[0.900], ensemble=[0.950]))
    assert found.is_clear_here


def test_what_the_paper_has_not_run_is_not_compared():
    assert contradictions(cells(**{"laser-mixed": [0.1, 0.1], "laser": [0.9, 0.9]})) == []
