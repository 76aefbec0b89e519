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
            "- Parameters that differ between a primary and its standby: a check looks at one server. Check both, and\n"
            "  compare the reports with `--against`.\n"
            "- Backups that leave no history in `pg_wal`: of a standby, by snapshots, by `pg_dump`. BAK-01 is then\n"
            "  unknown. The catalogues of pgBackRest, Barman and WAL-G are not read.\n"
            "- Indexes that an older collation has ordered, where the server keeps no version: PostgreSQL 14 has none\n"
            "  for a database.\n",
        )
    )
