"""From options to runs: what is combined, what is refused, and that keys can be relied on."""

import json
from dataclasses import replace

import pytest

from laser_vfl.cli.experiment.experiment_options import parse_changes, parse_methods, parse_p
from laser_vfl.cli.experiment.requested_grids import GridOptions, ablation_grid
from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.grid.case_settings import case_settings, settings_hash
from laser_vfl.experiments.grid.expansion import expand
from laser_vfl.experiments.grid.experiment_settings import METHODS as SETTINGS_METHODS
from laser_vfl.experiments.grid.experiment_settings import known_datasets
from laser_vfl.experiments.grid.names import DATASETS, METHODS

ASKED = GridOptions("hapt", "all", "0,0.1,0.5", "0,0.1,0.5", 5, "", "4", None, [])
CASE = Case("hapt", "laser", 0.5, (0.0, 0.1), 3)


def test_the_main_table_has_a_run_for_each_method_probability_and_seed():
    cases = expand(ASKED.grid())
    assert len(cases) == len({case.key() for case in cases}) == 8 * 3 * 5
    assert {case.seed for case in cases} == set(range(5))
    assert {case.p_test for case in cases} == {(0.0, 0.1, 0.5)}


def test_some_methods_have_fewer_seeds_or_none():
    grid = replace(ASKED, seeds_of="vfedtrans=3,combinatorial=1,local=0").grid()
    seeds = {method: set() for method in METHODS}
    for case in expand(grid):
        seeds[case.method].add(case.seed)
    assert seeds["vfedtrans"] == {0, 1, 2}
    assert seeds["combinatorial"] == {0}
    assert not seeds["local"]
    assert seeds["laser"] == set(range(5))


def test_scaling_leaves_out_what_does_not_scale():
    asked = replace(ASKED, p_train="0.1", p_test="0.1", clients="2,7,8", seeds=1)
    found = {(case.method, case.num_clients) for case in expand(asked.scaling("combinatorial=7"))}
    assert ("combinatorial", 7) in found
    assert ("combinatorial", 8) not in found
    assert ("laser", 8) in found
    assert not any(method == "vfedtrans" for method, _ in found)


def test_ablation_changes_what_it_names_and_the_user_has_the_last_word():
    grid = ablation_grid("batching", "hapt", None, None, None, 1, 2, [])
    cases = expand(grid)
    assert {(c.num_clients, c.variant) for c in cases} == {
        (k, f"{b}, {t}")
        for k in (4, 8)
        for b in ("mixed", "by_pattern")
        for t in ("per_sample", "per_batch")
    }
    settings = case_settings(next(c for c in cases if c.variant == "by_pattern, per_batch"))
    assert settings.training["batching"] == "by_pattern"
    assert settings.training["epochs"] == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dataset": "hpat"}, "did you mean hapt"),
        ({"dataset": ","}, "nothing is named"),
        ({"methods": "laser,foo"}, '"foo"; use local'),
        ({"p_train": "1"}, '--p-train: "1" is no probability'),
        ({"p_test": "nan"}, '--p-test: "nan" is no probability'),
        ({"seeds_of": "laser"}, "has no ="),
        ({"seeds_of": "lasr=2"}, "did you mean laser"),
        ({"seeds_of": "laser=-1"}, "is no number from 0"),
        ({"clients": "4,9"}, '"9" is no number from 1 to 8'),
        ({"sets": ["epochs=3"]}, "is no setting"),
        ({"epochs": 1, "sets": ["training.epochs=3"]}, "training.epochs is given twice"),
        ({"sets": ["training.epochs=[1, 2]"]}, "cannot be"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(wrong, said):
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        replace(ASKED, **wrong).grid()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("training.epcohs", 2), "training.epcohs: unknown key; did you mean epochs"),
        (("optimizer.lr", -1), "optimizer.lr: expected a number > 0"),
        (("data.lables_at", "bank"), "there is no data.lables_at"),
        (("data.max_train", 0), "data.max_train: expected an integer >= 1"),
        (("data.scaling", "minmax"), "data.scaling: expected one of standard, quantile, none"),
        (
            ("data.tasks", "third"),
            "data.tasks: expected one of split, first, second, got .third.; write one",
        ),
        (("epochs.training", 2), "there is no epochs.training"),
    ],
)
def test_a_change_is_checked_before_anything_runs(change, said):
    with pytest.raises(ConfigError, match=said):
        case_settings(replace(CASE, changes=(change,)))


def test_a_change_may_be_within_a_setting():
    icu = replace(CASE, dataset="icu")
    change = ("model.representation_options.width", 64)
    options = case_settings(replace(icu, changes=(change,))).model["representation_options"]
    assert options == {"width": 64, "layers": 1}
    assert case_settings(icu).model["representation_options"]["width"] != 64


def test_words_become_what_they_mean():
    assert parse_p("0.5, beta,0,0.5", "--p-train") == (0.5, "beta", 0.0)
    assert parse_methods("laser,local") == ("local", "laser")
    assert parse_changes(3, ["data.labels_at=bank", "optimizer.lr=0.1"]) == (
        ("data.labels_at", "bank"),
        ("optimizer.lr", 0.1),
        ("training.epochs", 3),
    )


def test_a_key_differs_with_everything_but_p_test():
    others = [
        replace(CASE, dataset="credit"),
        replace(CASE, method="local"),
        replace(CASE, p_train="beta"),
        replace(CASE, seed=4),
        replace(CASE, num_clients=5),
        replace(CASE, variant="x"),
        replace(CASE, changes=(("training.epochs", 2),)),
    ]
    assert len({CASE.key(), *(case.key() for case in others)}) == 8
    assert replace(CASE, p_test=(0.5,)).key() == CASE.key()
    assert json.loads(CASE.key().rsplit(" ", 1)[1]) == {}


def test_equal_settings_have_equal_hashes_and_others_do_not():
    assert settings_hash(CASE) == settings_hash(replace(CASE, seed=9))
    assert settings_hash(CASE) != settings_hash(replace(CASE, changes=(("training.epochs", 2),)))
    assert settings_hash(CASE) != settings_hash(replace(CASE, p_train=0.1))


def test_names_are_those_that_have_settings():
    assert set(METHODS) == set(SETTINGS_METHODS)
    assert set(DATASETS) == set(known_datasets())
