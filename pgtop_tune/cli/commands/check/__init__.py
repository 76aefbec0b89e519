"""`pgtop-tune check`: risks before production, with evidence, a fix and its undo."""

from __future__ import annotations

import sys

from pgtop_tune.cli.commands.check.request import CheckRequest


def check(request: CheckRequest) -> None:
    """Check a server and its machine before production: risks, their fixes, and how to undo each fix.

    Changes nothing; only --measure writes, into an unlinked file and a few bytes of WAL. A check without its input is
    unknown and counted as such, never passed. Exit status: 0 clean, 1 findings at or above --fail-on (with --strict
    unknown checks as well), any other: could not run.

    Examples: pgtop-tune check -d bench  ·  pgtop-tune check -v --select MEM -d bench  ·
    pgtop-tune check --format json --fail-on high -d bench  ·  pgtop-tune check --against yesterday.json -d bench  ·
    pgtop-tune check --measure -d bench  ·  pgtop-tune check --list --select MEM  ·
    pgtop-tune check --measure --format html -o go-live.html -d bench  ·
    pgtop-tune check --services 'prod-*' --format json  ·
    pgtop-tune check --host-memory 64GB --host-cpus 16 --disk network -h db1 bench
    """
    from pgtop_tune.cli.commands.check.checking import run_check

    sys.exit(run_check(request))
