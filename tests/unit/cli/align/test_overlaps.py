"""The table of align: what a person reads, whatever the number of clients."""

import io

from cli_found import found
from rich.console import Console

from laser_vfl.cli.align.overlaps import print_overlaps


def printed(alignment, width=80):
    console = Console(file=io.StringIO(), width=width)
    print_overlaps(alignment, "churn", console)
    text = console.file.getvalue()
    assert "…" not in text, "a table does not fit into a terminal"
    assert all(len(line) <= width for line in text.splitlines() if line[:1] in set("┏┃┡│└"))
    return text


def test_clients_stand_side_by_side():
    patterns = [(["bank", "telco"], 1_234_567), (["telco"], 10)]
    text = printed(found(["bank", "shop", "telco"], patterns, absent=["shop"]))
    assert text.startswith("bank of federation churn: aligned by hmac in 0.2 s\n")
    assert "took part: bank, telco\nabsent: shop\n\ntrain\n" in text
    assert "│  ●   │   ●   │ 1,234,567 │ 100.0% │ yes       │" in text
    assert "│      │   ●   │        10 │   0.0% │           │" in text
    assert "bank has 40 rows; others hold 30 of them too (75.0%)\n" in text
    assert text.endswith("1,234,577 samples altogether; 50.0% of their blocks are missing\n")


def test_clients_that_do_not_fit_side_by_side_are_named():
    roster = ["bank", *(f"organisation-with-a-long-name-{place:02}" for place in range(11))]
    text = printed(
        found(roster, [(roster, 9), (roster[:-1], 8), (roster[:2], 7), (roster[2:3], 6)]), 120
    )
    assert "│ all 12 " in text
    assert "│ all but organisation-with-a-long-name-10 " in text
    assert "│ bank, organisation-with-a-long-name-00 " in text
    assert "│ organisation-with-a-long-name-01 " in text
    roster = ["bank", *(f"client-{place:02}" for place in range(23))]
    words = printed(found(roster, [(roster[:10], 1)])).replace("│", "").split()
    assert "client-04, client-05 and 3 more" in " ".join(words)


def test_rare_patterns_are_left_out_and_counted():
    roster = ["bank", *(f"c{place:02}" for place in range(40))]
    patterns = [([name], 100) for name in roster]
    text = printed(found(roster, patterns))
    assert text.count("│ 100 ") + text.count("│     100 ") == 30
    assert "11 rarer patterns with 1,100 samples (26.8%) are left out; --format json" in text


def test_tables_without_samples_are_not_shown():
    text = printed(found(["bank"], []))
    assert text.endswith("took part: bank\nno table has a sample\n")


def test_text_of_others_cannot_change_the_terminal():
    text = printed(found(["bank"], [(["bank"], 1)], table="[bold]\x1b[31m"))
    assert "[bold]\\x1b[31m" in text
