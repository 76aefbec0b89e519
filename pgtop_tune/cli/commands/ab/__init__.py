"""`pgtop-tune ab`: two values of a parameter by turns in one run, with a verdict."""

from __future__ import annotations

import asyncio
import sys

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.ab.request import SwitchRequest
from pgtop_tune.cli.output import tell
from pgtop_tune.model.backend_action import PlannedBy


def ab(request: SwitchRequest) -> None:
    """Compare two values of a parameter under one continuous load, and put everything back.

    A and B are in force by turns; a coin decides which comes first in each pair of blocks. The command ends with a
    verdict on TPS: better, worse, equivalent within 2 %, or undecided at the end of the time. Each switch is a change
    set in the journal; after a kill the revert watchdog reverts it. The exit status is 0 with a verdict, 8 without.

    Values that take a restart (--restart) or new sessions, settings of the machine, two endpoints and two profiles are
    compared in blocks with a load of their own, each after a vacuum, a checkpoint and a warm-up.

    Examples: pgtop-tune ab random_page_cost=4,1.1 --profile select-only -c 16 -d bench  ·
    pgtop-tune ab wal_writer_delay=current,20ms work_mem=current,64MB --for 5m -d bench  ·
    pgtop-tune ab commit_delay=0,200 --against-load --for 30m -d bench  ·
    pgtop-tune ab shared_buffers=1GB,4GB --restart --for 20m -d bench  ·
    pgtop-tune ab vm.swappiness=60,1 -d bench  ·
    pgtop-tune ab --profile tpcb-like,simple-update -d bench  ·
    pgtop-tune ab --endpoint direct=:5432/bench --endpoint pool=:6432/bench -d bench
    """
    if request.detach:
        from pgtop_tune.cli.detached import start_detached

        sys.exit(start_detached(["ab"]))
    if request.plans is not PlannedBy.NOBODY and not request.against_load:
        raise UsageProblem("--plans needs --against-load", "the statements of a load of ours are known")
    from pgtop_tune.cli.commands.ab.switching import switch

    if request.against_load and not request.quiet:
        _say_unused(request)
    sys.exit(asyncio.run(switch(request)))


def _say_unused(request: SwitchRequest) -> None:
    """Options of a load that is not started: they do not describe the load that is there."""
    load = request.load
    typed = {
        "--profile": request.profile,
        "--clients": load.clients,
        "--rate": load.rate,
        "--protocol": load.protocol,
    }
    if names := [name for name, value in typed.items() if value]:
        tell(f"--against-load starts no load: {', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect")
