"""The page of bad conditions that tests make, and the check that finds each."""

from __future__ import annotations

from docs.markdown import plain, table
from pgtop_tune.health.registry import CHECKS
from tests.support.made_conditions import all_conditions


def conditions_page() -> str:
    """Every condition, in the order of the checks."""
    rows = all_conditions()
    order = [check.id for check in CHECKS]
    found = sorted(rows, key=lambda row: order.index(row[0]))
    return "\n".join(
        (
            "# Conditions\n",
            f"{len(rows)} bad conditions, and the check that finds each. A test creates every condition: on a real\n"
            "server, or for machines in a copy of the kernel's files; with a lower limit if the real one would\n"
            "take hours or gigabytes. Tests also run the printed statements and their undo. [Checks](checks.md)\n"
            "gives the reasons.\n",
            table(("condition", "found by"), ((plain(words), check) for check, words in found)),
            "## Conditions that no check finds\n",
            "- Settings of a primary, except those that replay requires, if only its standby is checked.\n"
            "- Backups by snapshots or `pg_dump`, and backups whose tool is on another machine: BAK-01 is\n"
            "  then unknown.\n"
            "- Indexes built with an older collation, if the server records no version: PostgreSQL 14 records none\n"
            "  for a database.\n",
        )
    )
