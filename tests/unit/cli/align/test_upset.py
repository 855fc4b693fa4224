"""The picture of align: what is in it, that no text covers another, and the file it goes to."""

import itertools
import subprocess
import sys

import pytest
from cli_found import found
from matplotlib.text import Annotation, Text

from laser_vfl.cli.align.align_command import AlignOptions, run_align
from laser_vfl.cli.align.upset import check_picture, draw_overlaps, write_picture
from laser_vfl.cli.figure_page import ABSENT, OTHER, OWN
from laser_vfl.core.errors import ConfigError

LONG = [f"organisation-with-a-long-name-{place:02}" for place in range(8)]


def subsets(roster):
    sizes = range(1, len(roster) + 1)
    return [blocks for size in sizes for blocks in itertools.combinations(roster, size)]


def counted(roster, first=1_000_000, step=3_000):
    return [(blocks, first - step * place) for place, blocks in enumerate(subsets(roster))]


SMALL = found(["bank", "shop"], [(["bank", "shop"], 640), (["shop"], 120), (["bank"], 75)])
LARGE = found(LONG, counted(LONG[:-1]), client=LONG[3], absent=[LONG[7]])
FULL = found(LONG, counted(LONG[:5])[:20], client=LONG[0])


def axes_of(figure, name):
    return next(axes for axes in figure.axes if axes.get_label() == name)


def texts_of(artist):
    return [text.get_text() for text in artist.texts]


def color_of(bar):
    return "#{:02X}{:02X}{:02X}".format(*(round(255 * part) for part in bar.get_facecolor()[:3]))


def test_a_bar_for_each_pattern_and_for_each_client():
    figure = draw_overlaps(SMALL, "churn")
    bars = axes_of(figure, "train bars")
    assert [bar.get_height() for bar in bars.patches] == [640, 120, 75]
    assert [color_of(bar) for bar in bars.patches] == [OWN, OTHER, OWN]
    assert texts_of(bars) == ["640", "120", "75"]
    sizes = axes_of(figure, "train sizes")
    assert [bar.get_width() for bar in sizes.patches] == [715, 760]
    assert [color_of(bar) for bar in sizes.patches] == [OWN, OTHER]
    assert texts_of(axes_of(figure, "train matrix")) == ["bank", "shop"]
    assert {
        "Federation churn: which samples have which blocks",
        "as bank sees it, aligned by hmac",
        "table train",
        "835 samples altogether",
        "40 rows of bank",
    } <= set(texts_of(figure))


def test_dots_are_joined_where_a_pattern_has_blocks():
    matrix = axes_of(draw_overlaps(SMALL, "churn"), "train matrix")
    assert [list(line.get_ydata()) for line in matrix.lines] == [[0, 1], [1, 1], [0, 0]]
    held = [dots.get_offsets().tolist() for dots in matrix.collections[1::2]]
    assert held == [[[0, 0], [0, 1]], [[1, 1]], [[2, 0]]]


def test_rare_patterns_are_one_bar_that_is_cut():
    figure = draw_overlaps(LARGE, "churn")
    bars = axes_of(figure, "train bars")
    assert len(bars.patches) == 21
    assert texts_of(bars)[-1] == f"{sum(count for _, count in counted(LONG[:-1])[20:]):,}"
    assert bars.patches[-1].get_height() == 1_000_000
    assert "107 other patterns" in texts_of(axes_of(figure, "train matrix"))


def test_the_absent_are_grey_and_have_no_dots():
    figure = draw_overlaps(LARGE, "churn")
    matrix = axes_of(figure, "train matrix")
    name = next(text for text in matrix.texts if text.get_text() == LONG[7])
    assert name.get_color() == ABSENT
    assert texts_of(axes_of(figure, "train sizes"))[7] == "absent"
    assert {y for dots in matrix.collections for _, y in dots.get_offsets()} == set(range(7))
    assert f"as {LONG[3]} sees it, aligned by hmac; 1 of 8 clients absent" in texts_of(figure)


def test_each_table_with_samples_has_a_panel():
    both = {**SMALL, "tables": {**SMALL["tables"], "test": SMALL["tables"]["train"]}}
    both["tables"]["serve"] = {**SMALL["tables"]["train"], "num_samples": 0, "patterns": []}
    names = {axes.get_label().split()[0] for axes in draw_overlaps(both, "churn").axes}
    assert names == {"train", "test"}
    empty = draw_overlaps(found(["bank"], []), "churn")
    assert "no table has a sample" in texts_of(empty)


@pytest.mark.parametrize("alignment", [SMALL, LARGE, FULL], ids=["two", "eight", "twenty"])
def test_no_text_covers_another_or_leaves_the_page(alignment):
    figure = draw_overlaps(alignment, "churn")
    figure.draw_without_rendering()
    # An annotation's own box would include the point that it is about.
    boxes = [
        (text.get_text(), Text.get_window_extent(text))
        for text in figure.findobj(Text)
        if text.get_text() and text.get_visible()
    ]
    assert any(isinstance(text, Annotation) for text in figure.findobj(Text))
    for name, box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, name
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, name
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        assert not first.overlaps(second), f"{one} and {other}"


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")]
)
def test_the_suffix_says_what_is_written(tmp_path, suffix, start):
    path = tmp_path / f"overlaps{suffix}"
    check_picture(path)
    assert not list(tmp_path.iterdir())
    write_picture(SMALL, "churn", path)
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_that_cannot_be_written_is_refused_before_anybody_is_asked(tmp_path):
    # There is no configuration here: nothing else has been looked at.
    def refused(plot):
        with pytest.raises(ConfigError) as caught:
            run_align(AlignOptions(tmp_path / "none.yaml", dry_run=True, plot=plot), as_json=True)
        return str(caught.value)

    assert "neither .png nor .svg nor .pdf" in refused(tmp_path / "overlaps.gif")
    assert "cannot be written (No such file or directory)" in refused(tmp_path / "no" / "a.png")
    (tmp_path / "a.png").mkdir()
    assert "cannot be written (it is a directory); give another --plot" in refused(
        tmp_path / "a.png"
    )


def test_without_matplotlib_a_sentence_says_what_to_install(tmp_path):
    script = f"""
import sys
sys.modules["matplotlib"] = None
sys.argv = ["laser-vfl", "align", "--config", "x.yaml", "--dry-run", "--plot", {str(tmp_path)!r}]
from laser_vfl.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == (
        "--plot needs matplotlib; install it with pip install 'laser-vfl[plot]'\n"
    )
    assert done.returncode == 2


def test_matplotlib_is_imported_only_for_a_picture():
    script = "import laser_vfl.cli.align.align_command, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n"
