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
            f"{len(rows)} bad conditions, and the check that finds each. A test makes every one of them: on a real\n"
            "server, or for a machine in a tree of the kernel's files; with a lower limit where it would take\n"
            "hours or gigabytes. Printed statements and their undo are run as well. [Checks](checks.md) tells why.\n",
            table(("condition", "found by"), ((plain(words), check) for check, words in found)),
            "## Not found\n",
            "- Settings of a primary besides those that replay needs, where its standby is checked alone.\n"
            "- Backups by snapshots or `pg_dump`, and those whose tool is on another machine: BAK-01 is then unknown.\n"
            "- Indexes that an older collation has ordered, where the server keeps no version: PostgreSQL 14 has none\n"
            "  for a database.\n",
        )
    )
