"""Every laser-vfl command that a page shows exists, with every option that it is shown with."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from laser_vfl.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = [
    page
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/exit-codes/*.md",
        "deploy/**/*.md",
        "examples/**/*.md",
    )
    for page in sorted(ROOT.glob(pattern))
]
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"(?:^|`|\$ )(?:\.venv/bin/)?laser-vfl ((?:[^`\n\\]|\\\n)+)", re.MULTILINE)


def commands_in(page: Path) -> list[list[str]]:
    """Return the words after laser-vfl of each command, up to what is for the shell."""
    found = []
    code = "\n".join(CODE.findall(page.read_text("utf-8")))
    for text in SHOWN.findall(code):
        plain = re.sub(r"[\[\]]", " ", text.replace("\\\n", " "))
        words = shlex.split(plain, comments=True)
        ends = [words.index(word) for word in ("2>", "&", "|", ">", "&&") if word in words]
        found.append(words[: min(ends, default=len(words))])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_exists(page: Path) -> None:
    for words in commands_in(page):
        command: Any = typer.main.get_command(app)
        left = list(words)
        while left and left[0] in getattr(command, "commands", {}):
            command = command.commands[left.pop(0)]
        is_group = hasattr(command, "commands")
        assert not (is_group and left and not left[0].startswith("-")), words
        options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        used = [word.split("=")[0] for word in left if re.match(r"--[a-z]", word)]
        assert set(used) <= options, words


def test_there_are_commands_to_check() -> None:
    assert sum(len(commands_in(page)) for page in PAGES) > 100
