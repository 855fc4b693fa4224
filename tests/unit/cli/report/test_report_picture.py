"""The picture and the tables of a report: what is in them, and that no text covers another."""

import itertools

import pytest
from cli_views import additive, view_of
from matplotlib.text import Text
from rich.console import Console

from laser_vfl.cli.figure_page import OWN
from laser_vfl.cli.report.report_content import report_of
from laser_vfl.cli.report.report_panels import LESS
from laser_vfl.cli.report.report_picture import draw_report, picture
from laser_vfl.cli.report.report_text import markdown, print_report

THREE = ["bank", "shop", "telco"]
LONG = [f"an-organisation-with-quite-a-long-name-indeed-in-the-town-{i:02}" for i in range(8)]
TWELVE = [f"org{i}" for i in range(12)]
MANY = [f"org{i}" for i in range(30)]


def worse(client, mask):
    """The second block does harm."""
    return 0.6 + 0.02 * mask.bit_count() - (0.07 if mask & 2 else 0.0)


def report_on(roster, value=additive, heads=None, **options):
    return report_of([view_of(k, roster, value, **options) for k in range(heads or len(roster))])


REPORTS = {
    "one of three": lambda: report_on(THREE, heads=1),
    "all of three": lambda: report_on(THREE),
    "alone": lambda: report_on(["bank"]),
    "harm": lambda: report_on(THREE, worse),
    "unknown": lambda: report_on(THREE, paired=0, without=[0b111]),
    "long names": lambda: report_on(LONG),
    "twelve": lambda: report_on(TWELVE),
    "thirty": lambda: report_on(MANY, lambda _, mask: 0.5 + mask.bit_count() / 70, heads=2),
    "all the same": lambda: report_on(THREE, lambda *_: 0.5),
    "below zero": lambda: report_on(THREE, lambda *_: -1.5, task="regression", score="r2"),
}


def axes_of(figure, name):
    return next(axes for axes in figure.axes if axes.get_label() == name)


def texts_of(artist):
    return [text.get_text() for text in artist.texts]


def color_of(bar):
    return "#{:02X}{:02X}{:02X}".format(*(round(255 * part) for part in bar.get_facecolor()[:3]))


def bars_of(axes):
    bars = [patch for patch in axes.patches if color_of(patch) in (OWN, LESS)]
    return [(bar.get_width(), color_of(bar)) for bar in bars]


def test_the_values_are_bars_with_names_the_highest_first():
    figure = draw_report(REPORTS["one of three"]())
    values = axes_of(figure, "values")
    widths = [width for width, _ in bars_of(values)]
    assert widths == pytest.approx([0.03, 0.02, 0.014])
    assert texts_of(values) == ["+0.030", "telco", "+0.020", "shop", "+0.014", "bank"]
    bold = {text.get_text() for text in values.texts if text.get_weight() == "bold"}
    assert bold == {"bank"}


def test_what_does_harm_has_another_colour():
    values = axes_of(draw_report(REPORTS["harm"]()), "values")
    assert [color for _, color in bars_of(values)] == [OWN, OWN, LESS]


def test_the_curve_has_means_and_the_constant():
    figure = draw_report(REPORTS["all of three"]())
    axes = axes_of(figure, "curve")
    means, constant = axes.lines
    assert list(means.get_xdata()) == [0, 1, 2]
    assert list(means.get_ydata()) == pytest.approx([0.5613, 0.5413, 0.5213], abs=1e-3)
    assert set(constant.get_ydata()) == {0.5}


def test_every_subset_has_a_dot_over_its_blocks():
    report = REPORTS["all of three"]()
    figure = draw_report(report)
    dots = axes_of(figure, "stems").lines[0]
    assert list(dots.get_ydata()) == [entry["score"] for entry in report["subsets"]]
    matrix = axes_of(figure, "matrix")
    _, every, held = matrix.collections
    assert len(every.get_offsets()) == 7 * 3
    assert held.get_offsets().tolist() == [
        [column, THREE.index(name)]
        for column, entry in enumerate(report["subsets"])
        for name in entry["blocks"]
    ]


def test_of_many_subsets_the_best_and_the_worst_of_each_size_are_shown():
    figure = draw_report(REPORTS["long names"]())
    assert "The best and the worst subset of each size, of 255 subsets" in texts_of(figure)
    assert len(axes_of(figure, "stems").lines[0].get_ydata()) == 15
    figure = draw_report(REPORTS["thirty"]())
    assert any("subset of 15 sizes" in text for text in texts_of(figure))
    assert 15 <= len(axes_of(figure, "stems").lines[0].get_ydata()) <= 31


@pytest.mark.parametrize("case", REPORTS)
def test_no_text_covers_another_or_leaves_the_page(case):
    figure = draw_report(REPORTS[case]())
    figure.draw_without_rendering()
    boxes = [
        (text.get_text(), Text.get_window_extent(text))
        for text in figure.findobj(Text)
        if text.get_text() and text.get_visible()
    ]
    for name, box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, name
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, name
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        assert not first.overlaps(second), f"{one} and {other}"


def test_a_picture_is_a_png():
    assert picture(REPORTS["all of three"]()).startswith(b"\x89PNG")


def test_a_person_sees_all_tables(capsys):
    print_report(REPORTS["all of three"](), Console(width=100))
    said = capsys.readouterr().out
    assert "by the heads of bank, shop and telco" in said
    assert "accuracy on the 90 test rows that have all 3 blocks" in said
    for text in ("What each block is worth", "to telco", "Accuracy when blocks are missing"):
        assert text in said
    assert "│ bank, shop, telco │    0.561 │" in said


def test_long_lists_are_cut_on_a_terminal_and_whole_in_markdown(capsys):
    report = report_on([f"org{i}" for i in range(6)])
    print_report(report, Console(width=100))
    assert "32 more; --format json has them" in capsys.readouterr().out
    page = markdown(report, "report.png")
    assert "![The curve, the values and the subsets](report.png)" in page
    lines = page.splitlines()
    assert sum(line.startswith("| org") and line.endswith(" 190 |") for line in lines) == 6
    assert lines[-1] == "| org0 | 0.514 | 0.514 | 190 |"


def test_markdown_has_values_with_their_errors():
    page = markdown(REPORTS["twelve"](), "report.png")
    assert "| org11 | +0.120 ± 0.000 |" in page
    assert "- values are estimates from 20 random orders of blocks" in page
    assert "unknown" in markdown(REPORTS["unknown"](), "report.png")
