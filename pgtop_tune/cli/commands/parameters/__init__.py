"""The commands that show and change parameters: `parameters`, `advise`, `diff`, `set`, `reset` and `revert`."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.parameters.request import (
    AdviseRequest,
    ListRequest,
    ResetRequest,
    RevertRequest,
    SetRequest,
)
from pgtop_tune.cli.options import Format

_SIDE: Final = "A recording, or a server: database, URI or keywords."


def parameters(request: ListRequest) -> None:
    """Show the parameters worth tuning on this server: value, unit, context, source, and advice.

    Takes two seconds. `context` says when a change takes effect: sighup with a reload, postmaster with a restart, user
    and superuser also for a session. `advise` gives the reasons. With --group os: the settings of the operating
    system, now and at boot.

    Examples: pgtop-tune parameters -d bench  ·  pgtop-tune parameters --group wal --changed --format json -d bench  ·
    pgtop-tune parameters --group os -d bench
    """
    from pgtop_tune.cli.commands.parameters.advice import say_parameters

    say_parameters(request)


def advise(request: AdviseRequest) -> None:
    """Suggest starting values for the parameters, with reasons and the results of known calculators.

    Calculators differ up to 20-fold, and none has measured this server: take their results as a starting point and as
    bounds for a search. Changes nothing without --apply.

    All values fit together: memory, huge pages, overcommit and WAL of one machine. --apply shows each advised value
    beside the running and the pending one, asks, and applies the change set; `revert` undoes it. Sysctls also survive a
    reboot, unless --for reverts the change set; for other settings the command is shown. On another machine only the
    server's half is applied.

    Examples: pgtop-tune advise -d bench  ·  pgtop-tune advise --apply --dry-run -d bench  ·
    pgtop-tune advise --apply --restart -d bench  ·
    pgtop-tune advise --profile olap --group memory --format sql -d bench  ·
    pgtop-tune advise --group os -d bench
    """
    from pgtop_tune.cli.commands.parameters.advice import run_advise

    sys.exit(run_advise(request))


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help=_SIDE)],
    everything: Annotated[
        bool, typer.Option("--all", help="Include names of directories, and parameters that only one side has.")
    ] = False,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
    no_password: options.NoPassword = False,
) -> None:
    """Show the parameters that differ: of two servers, a server and a recording, or two recordings.

    Includes settings of the operating system if both sides know their machine. An existing file is a recording,
    anything else a server as in psql. Of a recording, the last frame counts.

    Examples: pgtop-tune diff before.jsonl.gz after.jsonl.gz  ·
    pgtop-tune diff before.jsonl.gz "host=/run/postgresql dbname=bench"  ·
    pgtop-tune diff postgresql://db1/shop postgresql://db2/shop --format json
    """
    from pgtop_tune.cli.commands.parameters.differences import say_differences

    say_differences(a, b, format, everything=everything, no_password=no_password)


def set_parameters(
    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="Names and values to set."),
    ] = None,
    *,
    request: SetRequest,
) -> None:
    """Set parameters of a running server: show the SQL, write the journal, change, read back.

    Several settings form one change set: all are applied in the right order, or none. With --for the command waits and
    then reverts the set, also on Ctrl-C; after a kill the revert watchdog reverts it. --scope load changes nothing and
    prints the PGOPTIONS for the next load.

    The set may include settings of the operating system (vm.swappiness, transparent_hugepage/enabled, vda/scheduler).
    They need root on the server's machine; otherwise `set` prints the commands to run and changes nothing.

    --restart restarts the server once, with the program that manages it, after checks of memory, huge pages, libraries
    and standbys; a server that does not come up gets its old values back. Without NAME=VALUE it applies the parameters
    already pending.

    Examples: pgtop-tune set max_wal_size=4GB --for 5m -d bench  ·
    pgtop-tune set shared_buffers=8GB --restart -d bench  ·
    pgtop-tune set work_mem=64MB --scope role=reports -d bench  ·
    pgtop-tune set max_wal_size=16GB min_wal_size=4GB --reason "fewer checkpoints" --dry-run -d bench  ·
    pgtop-tune set vm.nr_hugepages=2130 huge_pages=on --dry-run -d bench
    """
    from pgtop_tune.cli.commands.parameters.setting import set_values

    sys.exit(set_values(assignments or (), request))


def reset_parameters(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names to reset.")],
    *,
    request: ResetRequest,
) -> None:
    """Reset parameters: remove their entries from postgresql.auto.conf, or from a role or a database.

    The value of the configuration files, or the server's default, applies again. The journal records the change as for
    `set`, and `revert` restores the entry. The value that applies is judged as a typed one. A setting of the operating
    system gets its boot value, and the command removes our line in sysctl.d.

    Examples: pgtop-tune reset max_wal_size -d bench  ·  pgtop-tune reset work_mem --scope role=reports --dry-run
    """
    from pgtop_tune.cli.commands.parameters.setting import reset_values

    sys.exit(reset_values(names, request))


def revert(request: RevertRequest) -> None:
    """Revert every change in force that pgtop-tune made on this server, also after a crash.

    Settings of the machine in the same change sets are reverted, too; --machine reverts all settings of the machine,
    and nothing else. If the server is down, the command restores the old values in its postgresql.auto.conf and prints
    what starts it; it starts it if a restart of ours is reverted, or after a yes. It finds a server that listens
    elsewhere since a restart. The command works from the change journal; the process that made the changes need not
    exist. A primary and its standbys have separate journals. A change that the server refuses to revert stays in
    force, does not stop the others, and ends the command with status 6. --list shows the changes of all
    servers in this user's journals.

    Examples: pgtop-tune revert --list  ·  pgtop-tune revert -h /run/postgresql -d bench  ·  pgtop-tune revert --last
    """
    from pgtop_tune.cli.commands.parameters.reverting import run_revert

    sys.exit(run_revert(request))
