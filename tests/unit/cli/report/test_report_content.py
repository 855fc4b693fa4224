"""What a report says: which rows, which games, and nothing that is not known."""

import json

import pytest
from cli_views import additive, view_of

from laser_vfl.cli.report.report_content import report_of, sentences
from laser_vfl.cli.report.report_views import ReportSource
from laser_vfl.core.errors import ConfigError, LaserError, MismatchError, NotReady

THREE = ["bank", "shop", "telco"]
TWELVE = [f"org{i}" for i in range(12)]


def all_of(roster, **options):
    return [view_of(client, roster, additive, **options) for client in range(len(roster))]


def values_of(shapley):
    return {entry["block"]: entry["value"] for entry in shapley["values"]}


def refused(kind, *arguments):
    with pytest.raises(LaserError) as caught:
        report_of(*arguments)
    assert isinstance(caught.value, kind)
    return str(caught.value)


def test_one_client_with_its_own_block_first():
    report = report_of(all_of(THREE)[:1])
    shapley = report["shapley"]
    assert (shapley["method"], shapley["own"], report["heads"]) == ("exact", "bank", ["bank"])
    assert values_of(shapley) == pytest.approx({"bank": 0.014, "shop": 0.02, "telco": 0.03})
    assert sum(values_of(shapley).values()) == pytest.approx(
        report["all_blocks"] - report["constant"]
    )
    assert (report["rows"], report["num_samples"]) == ("fully observed", {"bank": 90})
    assert [entry["blocks"] for entry in report["subsets"]] == [
        THREE,
        ["bank", "telco"],
        ["bank", "shop"],
        ["bank"],
    ]
    points = [(p["num_missing"], p["num_subsets"], p["num_possible"]) for p in report["curve"]]
    assert points == [(0, 1, 1), (1, 2, 2), (2, 1, 1)]
    assert report["curve"][1]["mean"] == pytest.approx((0.544 + 0.534) / 2)
    assert (report["curve"][1]["min"], report["curve"][1]["max"]) == pytest.approx((0.534, 0.544))


def test_all_clients_together_are_averaged_over_heads():
    report = report_of(all_of(THREE))
    scores = {tuple(entry["blocks"]): entry["score"] for entry in report["subsets"]}
    assert len(scores) == 7
    assert scores["bank", "shop"] == pytest.approx(0.53 + 0.004 / 2)
    assert scores["shop", "telco"] == pytest.approx(0.55)
    assert scores["bank", "shop", "telco"] == pytest.approx(0.56 + 0.004 / 3)
    shapley = report["shapley"]
    assert "own" not in shapley
    assert sum(values_of(shapley).values()) == pytest.approx(0.06 + 0.004 / 3)
    # Of the 0.004 that the bank's head is better by, the bank has it all when it comes first.
    assert values_of(shapley)["telco"] == pytest.approx(
        0.03 - 0.004 * (1 / 6 * 1 / 2 + 1 / 3 * 1 / 6), abs=1e-9
    )
    assert set(report["by_head"]) == set(THREE)
    alone = report_of(all_of(THREE)[:1])
    assert report["by_head"]["bank"] == alone["by_head"]["bank"] == alone["shapley"]
    assert report["heads_left_out"] == []


def test_blocks_without_a_head_are_worth_what_they_add_to_heads():
    views = [view_of(0, THREE, additive, heads=["bank"])]
    views += [
        view_of(client, THREE, additive, heads=["bank"], task=None, scores=False)
        for client in (1, 2)
    ]
    report = report_of(views)
    assert report["heads"] == ["bank"]
    # v(shop) = v(telco) = v(shop,telco) = v(nobody) = 0.5; the rest as the bank predicts.
    assert values_of(report["shapley"]) == pytest.approx(
        {"bank": 0.014 + 0.02 / 2 + 0.03 / 2, "shop": 0.02 / 2, "telco": 0.03 / 2}
    )
    assert [point["num_possible"] for point in report["curve"]] == [1, 2, 1]


def test_a_head_that_nobody_gave_is_named():
    report = report_of(all_of(THREE)[:2])
    assert report["heads_left_out"] == ["telco"]
    assert any("the heads of telco are left out" in text for text in sentences(report))


@pytest.mark.parametrize("paired", [0, 29])
def test_with_few_fully_observed_rows_each_subset_has_its_own(paired):
    report = report_of(all_of(THREE, paired=paired))
    assert (report["rows"], report["num_samples"]) == ("available", None)
    assert "what differs may also be the rows" in sentences(report)[0]
    assert None not in values_of(report["shapley"]).values()


def test_heads_may_have_labels_for_different_rows():
    report = report_of([view_of(0, THREE, additive), view_of(1, THREE, additive, paired=70)])
    assert report["num_samples"] == {"bank": 90, "shop": 70}
    assert sentences(report)[0] == "accuracy on the 70 to 90 test rows that have all 3 blocks"


def test_one_head_with_few_such_rows_is_enough_for_none():
    views = [*all_of(THREE)[:2], view_of(2, THREE, additive, paired=10)]
    assert report_of(views)["rows"] == "available"
    assert report_of(views)["by_head"]["bank"]["rows"] == "fully observed"


def test_what_depends_on_an_unknown_score_is_not_given():
    """No test row has all three blocks."""
    report = report_of(all_of(THREE, paired=0, without=[0b111]))
    assert set(values_of(report["shapley"]).values()) == {None}
    assert report["shapley"]["unknown"] == [THREE]
    assert report["all_blocks"] is None
    assert [point["num_missing"] for point in report["curve"]] == [1, 2]
    assert any("no score: bank,shop,telco. No test row" in text for text in sentences(report))
    # To the bank, its own block is worth something all the same.
    assert report["by_head"]["bank"]["values"][0]["value"] == pytest.approx(0.014)
    assert report["by_head"]["bank"]["values"][1]["value"] is None


def test_a_block_that_no_test_row_has_is_left_out_and_named():
    with_telco = [mask for mask in range(8) if mask & 4]
    views = all_of(THREE, paired=0, without=with_telco)
    assert views[2].scores.by_subset == {}
    report = report_of(views)
    assert (report["blocks"], report["blocks_not_tested"]) == (["bank", "shop"], ["telco"])
    assert report["heads"] == ["bank", "shop"]
    values = values_of(report["shapley"])
    assert list(values) == ["bank", "shop"]
    assert None not in values.values()


def test_above_ten_blocks_values_are_estimates():
    views = all_of(TWELVE)
    report = report_of(views)
    shapley = report["shapley"]
    assert (shapley["method"], shapley["num_orders"]) == ("sampled", 20)
    assert sum(values_of(shapley).values()) == pytest.approx(0.78 + 0.004 / 12)
    for place, entry in enumerate(shapley["values"]):
        # What a block adds is the same in every order but for the bank's head.
        assert entry["value"] == pytest.approx((place + 1) / 100, abs=0.004)
        assert 0 <= entry["standard_error"] < 0.002
    assert any("20 random orders" in text for text in sentences(report))
    alone = report_of(views[3:4])
    assert values_of(alone["shapley"]) == pytest.approx(
        {name: (place + 1) / 100 for place, name in enumerate(TWELVE)}
    )
    counts = {point["num_missing"]: point["num_subsets"] for point in report["curve"]}
    assert (counts[0], counts[11]) == (1, 12)
    # Only subsets that all of their heads were scored on are everybody's.
    assert 15 < counts[6] <= 20
    assert report["curve"][6]["num_possible"] == 924


def test_above_ten_blocks_an_unknown_prefix_leaves_some_open():
    order = view_of(0, TWELVE, additive).orders[0]
    hole = sum(1 << TWELVE.index(name) for name in order[:5])
    report = report_of(all_of(TWELVE, paired=0, without=[hole]))
    values = values_of(report["shapley"])
    assert {name for name, value in values.items() if value is None} >= {order[4], order[5]}
    assert any(value is not None for value in values.values())
    assert sorted(order[:5]) in [sorted(subset) for subset in report["shapley"]["unknown"]]


def test_views_of_an_older_release_say_what_they_can():
    """It stored neither the constant nor the fully observed rows, nor orders."""

    def older(view):
        stored = view.model_dump()
        del stored["scores"]["constant"], stored["scores"]["fully_observed"]
        del stored["scores"]["orders"]
        return ReportSource.model_validate(stored)

    report = report_of([older(view_of(0, THREE, additive))])
    assert values_of(report["shapley"]) == pytest.approx(
        {"bank": None, "shop": 0.02, "telco": 0.03}
    )
    assert any("the constant prediction has no score" in text for text in sentences(report))
    together = report_of([older(view) for view in all_of(THREE)])
    assert set(values_of(together["shapley"]).values()) == {None}
    many = report_of([older(view_of(0, TWELVE, additive))])
    assert set(values_of(many["shapley"]).values()) == {None}
    assert any("an older release has tested this model" in text for text in sentences(many))


def test_the_score_is_one_that_all_have():
    binary = [view_of(client, THREE, additive, task="binary", score="auc") for client in range(2)]
    assert report_of(binary, "auc")["all_blocks"] == pytest.approx(0.562)
    assert report_of(binary)["score"] == "accuracy"
    text = refused(ConfigError, all_of(THREE)[:1], "auc")
    assert "there is no auc of bank (multiclass); use accuracy" in text
    mixed = [binary[0], view_of(1, THREE, additive, task="regression", score="r2")]
    assert "no score that all have in common" in refused(ConfigError, mixed)
    assert report_of(mixed[1:])["score"] == "r2"


def test_what_does_not_belong_together_is_refused():
    first, second, _ = all_of(THREE)
    other = second.model_copy(update={"federation": "loans"})
    text = refused(MismatchError, [first, other])
    assert "bank is of federation churn, shop of loans" in text
    text = refused(MismatchError, [first, second.model_copy(update={"run": "f" * 32})])
    assert f"shop of run {'f' * 32}" in text
    assert "bank is given twice" in refused(ConfigError, [first, first])


def test_who_has_no_scores_is_told_why():
    nobody = view_of(2, THREE, additive, heads=["bank", "shop"], task=None, scores=False)
    assert "telco has no head to report on; ask bank or shop" in refused(NotReady, [nobody])
    untested = view_of(0, THREE, additive, scores=False)
    assert "set `data.test`, and train again" in refused(NotReady, [untested])
    assert "none of bank, telco has scores" in refused(NotReady, [untested, nobody])


def test_a_report_is_json_and_has_all_that_others_need():
    views = all_of(THREE)
    text = json.dumps(report_of(views), allow_nan=False)
    assert [ReportSource.model_validate(view) for view in json.loads(text)["views"]] == views
