"""What the pages point to exists: links, headings, files, and the names of classes in files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "examples/**/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
FOLDERS = ("laser_vfl", "tests", "scripts", "benchmarks", "docs", "deploy", "examples", "protos")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(
    r"`([\w./-]+/[\w.-]+\.(?:py|proto|toml|yaml|md))`(?: `(\w+(?:\.\w+)?)(?:\(\))?`)?"
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the fragments by which the page's headings are linked to."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), target
        if fragment:
            assert fragment in anchors(linked), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_is_named_exists_and_has_the_name_beside_it(page: Path) -> None:
    for path, symbol in FILE.findall(prose(page)):
        top = path.split("/")[0]
        if not top or (top not in FOLDERS and not (ROOT / "laser_vfl" / top).is_dir()):
            continue  # a file of the reader's, such as conf/bank.yaml
        found = [base / path for base in (ROOT, ROOT / "laser_vfl") if (base / path).exists()]
        assert found, path
        for part in symbol.split(".") if symbol else ():
            assert re.search(rf"\b{part}\b", found[0].read_text("utf-8")), f"{path} {symbol}"


@pytest.mark.parametrize("title", ["A batch, file by file", "A prediction, file by file"])
def test_a_walk_has_at_most_a_dozen_files(title: str) -> None:
    page = prose(ROOT / "docs" / "architecture.md")
    [section] = re.findall(rf"^## {title}$(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (\d+) \| `([\w./]+)`", section, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert 8 <= len({file for _, file in rows}) == len(rows) <= 12
