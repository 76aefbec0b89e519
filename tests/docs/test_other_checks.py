"""The page that compares the checks of other tools with ours: it names what there is, and counts what it lists."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import typer.main

from docs.generate import REFERENCE
from pgtop_tune.cli.app import program
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.tui.actions import NAMES

TEXT = (REFERENCE / "other-checks.md").read_text(encoding="utf-8")
ID = re.compile(r"\b[A-Z]+-\d\d\b")
KINDS = ("a check", "in part", "a page or command", "no")


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def _tables() -> dict[str, list[list[str]]]:
    """Heading → rows of its table, without the head."""
    found = {}
    for section in TEXT.split("\n## ")[1:]:
        rows = _rows(section)
        if rows:
            found[section.splitlines()[0]] = rows[2:]
    return found


TABLES = _tables()
ROWS = [(tool, row) for tool, rows in TABLES.items() for row in rows]


def _kind(ours: str) -> str:
    if ours.startswith("no"):
        return "no"
    if "in part" in ours:
        return "in part"
    return "a check" if ID.search(ours) else "a page or command"


def test_every_id_on_the_page_is_a_check() -> None:
    named = set(ID.findall(TEXT))
    assert len(named) > 80
    assert named <= {check.id for check in CHECKS}


@pytest.mark.parametrize("tool", TABLES)
def test_every_row_says_what_is_looked_at_and_what_of_ours_answers(tool: str) -> None:
    pages = {key for key, _ in NAMES}
    commands = typer.main.get_command(program()).commands  # type: ignore[attr-defined]
    for row in TABLES[tool]:
        assert len(row) == 3, row
        assert all(row), row
        ours = row[2]
        assert re.match(r"no: \S|page \d|findings|`|" + ID.pattern, ours), row
        assert set(re.findall(r"page (\d)", ours)) <= pages, row
        if ours.startswith("`"):
            assert ours.strip("`").split("`")[0].split()[0] in commands, row


def test_no_check_of_a_tool_is_listed_twice() -> None:
    assert [each for each, times in Counter((tool, row[0]) for tool, row in ROWS).items() if times > 1] == []


def test_the_summary_counts_the_rows() -> None:
    counted = {tool: Counter(_kind(row[2]) for row in rows) for tool, rows in TABLES.items()}
    counted["all"] = sum(counted.values(), Counter[str]())
    wanted = {tool: [str(kinds.total()), *(str(kinds[kind]) for kind in KINDS)] for tool, kinds in counted.items()}
    shown = {cells[0]: cells[1:] for cells in _rows(TEXT.split("\n## ")[0])[2:]}
    assert shown == wanted
    said = re.search(r"Of (\d+) checks of theirs, (\d+) .*?, (\d+) .*?, (\d+) .*?and (\d+) ", TEXT, re.DOTALL)
    assert said is not None
    assert list(said.groups()) == wanted["all"]
