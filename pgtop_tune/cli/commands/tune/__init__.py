"""`pgtop-tune tune`: an unattended search for better values of parameters."""

from __future__ import annotations

import sys

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.tune.request import TuneRequest


def tune(request: TuneRequest) -> None:
    """Search for better values of parameters, unattended, and put everything back.

    Each evaluation sets two settings by turns under one load, as `ab` does. A screen of twelve evaluations finds the
    knobs that matter, a climb turns them, knobs that earned nothing go back, and the winner is measured against the
    start in at least eight fresh evaluations: that figure alone is the result. Every switch is pending confirmation;
    after a kill the revert watchdog reverts it, and --resume continues. Values that can lose data are never tried.

    Exit status: 0 with a result, also where the start stays; 8 without.

    Examples: pgtop-tune tune --profile tpcb-like -c 16 --budget 2h -d bench  ·
    pgtop-tune tune --knobs random_page_cost,work_mem --profile select-only -d bench  ·
    pgtop-tune tune --group wal --objective p99@500 --constraint 'tps >= 490' --budget 8h --detach -d bench  ·
    pgtop-tune tune --watch --budget 1h -d shop  ·
    pgtop-tune tune --resume last -d bench  ·
    pgtop-tune tune --group planner --workers tcp://scheduler:8786  ·
    pgtop-tune tune --show last -o tune.html
    """
    from pgtop_tune.cli.commands.tune import results

    if request.status:
        results.list_tunings()
        return
    if request.show:
        found = results.directory_named(request.show)
        if request.apply:
            sys.exit(results.apply_result(request.connection, found, yes=request.yes))
        results.show_tuning(found, request.output, force=request.force)
        return
    if request.output is not None:
        raise UsageProblem("-o belongs to --show", "`pgtop-tune tune --show last -o tune.html`")
    if request.detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["tune"]))
    from pgtop_tune.cli.commands.tune.search import searched

    sys.exit(searched(request))
