"""Writes the table of attacks into docs/security.md, with what came of them when they last ran."""

import json
from pathlib import Path

from tests.support.attacks.attack_results import RESULTS
from tests.support.attacks.attack_table import ATTACKS

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"


def row(name: str, result: str) -> str:
    """Return one line of the table."""
    attack = ATTACKS[name]
    return f"| {name} | {attack.does} | {attack.expected} | {result} |"


def table(results: dict[str, str]) -> str:
    """Return the table; an attack that has not been run has no result."""
    head = ["| Attack | What is done | Expected | Result |", "|---|---|---|---|"]
    rows = [row(name, _verdict(name, results)) for name in ATTACKS]
    return "\n".join([*head, *rows]).replace("cmd|", "cmd\\|")


def _verdict(name: str, results: dict[str, str]) -> str:
    if name not in results:
        return "not run"
    return "as expected" if results[name] == ATTACKS[name].expected else results[name]


def main() -> None:
    """Rewrite what is between the markers."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")


if __name__ == "__main__":
    main()
