"""What reports say, from made-up results."""

import pytest

from laser_vfl.cli.experiment.requested_grids import GridOptions, ablation_grid
from laser_vfl.experiments.grid.ablations import ABLATIONS
from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.grid.expansion import expand
from laser_vfl.experiments.grid.names import METHODS
from laser_vfl.experiments.plots.pictures import write_pictures
from laser_vfl.experiments.report.cells import Value, cells_of
from laser_vfl.experiments.report.markdown import shown
from laser_vfl.experiments.report.report import report_data, report_text
from laser_vfl.experiments.runner.experiment_record import Record
from tests.support.fakes.stand_in_engine import run_case

ASKED = GridOptions("hapt,credit", "all", "0,0.5", "0,beta", 3, "vfedtrans=1", "4", None, [])


def lines_of(cases, settings="s", engine="oracle"):
    return [
        {
            **result,
            "key": case.key(),
            "settings": settings,
            "changes": dict(case.changes),
            "engine": engine,
        }
        for case in cases
        for result in run_case(case)
    ]


def of_seeds(*scores):
    lines = lines_of([Case("hapt", "laser", 0.0, (0.0,), seed) for seed in range(len(scores))])
    return [{**line, "score": score} for line, score in zip(lines, scores, strict=True)]


def test_mean_and_sample_deviation_in_the_paper_s_units():
    (cell,) = cells_of(of_seeds(0.80, 0.82, 0.84)).values()
    assert str(cell.value) == "82.0 ± 2.0"
    assert str(next(iter(cells_of(of_seeds(0.8)).values())).value) == "80.0"


def test_of_two_results_for_a_seed_the_later_counts():
    (cell,) = cells_of([*of_seeds(0.5), *of_seeds(0.7)]).values()
    assert (cell.num_seeds, cell.value.mean) == (1, pytest.approx(70))


def test_the_best_is_bold_as_printed():
    values = [Value(90.04, 1.0), None, Value(89.96, None), Value(89.9, 0.1)]
    assert shown(values) == ["**90.0** ± 1.0", "–", "**90.0**", "89.9 ± 0.1"]


def test_a_table_has_the_paper_beside_it_its_notes_and_its_seeds():
    record = Record("table", {"hapt": ["Features re-derived."]})
    text = report_text(record, lines_of(expand(ASKED.grid())))
    assert text.index("## HAPT (accuracy, %)") < text.index("## Credit (F1 × 100)")
    header = "| Trained with p = 0 | test p = 0 | paper | test p ~ Beta(2, 2) | seeds |"
    assert header in text
    assert "| **94.2** ± 0.1 |" in text
    assert text.count("- Features re-derived.") == 1
    assert "Differs from the paper" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| VFedTrans")]
    assert {row[-1] for row in rows} == {"1 |"}
    assert all(f"| {name} |" in text for name in METHODS.values())


def test_changed_and_mixed_settings_are_told():
    first = Case("hapt", "laser", 0.0, (0.0,), 0, changes=(("training.epochs", 2),))
    second = Case("hapt", "laser", 0.0, (0.0,), 1)
    text = report_text(Record("table"), lines_of([first], "a") + lines_of([second], "b", "grpc"))
    assert "Runs of LASER-VFL have changed settings: training.epochs=2." in text
    assert "Seeds with different settings are mixed" in text
    assert "Engine: grpc, oracle." in text


def test_scaling_has_scores_times_and_growth_per_client():
    asked = GridOptions("hapt", "all", "0.1", "0.1", 2, "", "2,4,8", None, [])
    text = report_text(Record("scaling"), lines_of(expand(asked.scaling("combinatorial=4"))))
    (score, time) = [line for line in text.splitlines() if line.startswith("| Combinatorial")]
    assert score.count("–") == 1
    assert time.count("–") == 2
    laser = [line for line in text.splitlines() if line.startswith("| LASER-VFL |")][1]
    assert 0.9 < float(laser.split("|")[-2].split()[0]) < 1.1


@pytest.mark.parametrize("kind", list(ABLATIONS))
def test_an_ablation_has_a_row_for_each_variant(kind, tmp_path):
    # The settings need not know what varies: it is handed on to the engine.
    grid = ablation_grid(kind, "hapt", "4", None, None, 2, 3, [])
    lines = lines_of(expand(grid))
    text = report_text(Record(f"ablation {kind}"), lines)
    for variant in ABLATIONS[kind].variants:
        assert f"| {variant.name} |" in text
    assert "All runs have changed settings: training.epochs=3." in text
    assert ("| bank |" in text) == (kind in ("labels", "tasks"))
    (picture,) = write_pictures(Record(f"ablation {kind}"), lines, tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_pictures_of_all_kinds(tmp_path):
    lines = lines_of(expand(ASKED.grid()))
    paths = write_pictures(Record("nonuniform"), lines, tmp_path)
    assert [path.name for path in paths] == ["hapt.png", "credit.png"]
    asked = GridOptions("hapt", "laser,local", "0.1", "0.1", 1, "", "2,4", None, [])
    (path,) = write_pictures(Record("scaling"), lines_of(expand(asked.scaling(""))), tmp_path)
    assert path.name == "hapt-0.1-0.1.png"


def test_the_report_for_programs():
    data = report_data(Record("table"), of_seeds(0.80, 0.82))
    (cell,) = data["cells"]
    assert (cell["mean"], cell["num_seeds"]) == (pytest.approx(81), 2)
    assert (cell["paper_mean"], cell["paper_std"]) == (94.2, 0.1)
