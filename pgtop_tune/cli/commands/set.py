"""`pgtop-tune set` and `reset`: change parameters of a server, for a while or for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pgtop_tune.cli.connecting import ConnectionOptions, ConnectionWords

if TYPE_CHECKING:
    from pgtop_tune.cli.changing import ChangeRequest
    from pgtop_tune.postgres.server.conninfo import ConnInfo

Reason = Annotated[str, typer.Option("--reason", metavar="WORDS", show_default=False, help="Reason for the journal.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the SQL and the commands; change nothing.")]
Persist = Annotated[
    bool,
    typer.Option(
        "--persist", help="Keep settings of the machine after a reboot, too, through a file in /etc/sysctl.d."
    ),
]
ForHowLong = Annotated[
    str,
    typer.Option("--for", metavar="TIME", show_default=False, help="Revert after 30s, 5m, 1h (default: never)."),
]
ForWhom = Annotated[
    str,
    typer.Option("--scope", metavar="WHOM", help="system, role=NAME, database=NAME, role=NAME,database=NAME, or load."),
]

Restart = Annotated[
    bool, typer.Option("--restart", help="Restart the server once to apply parameters that need a restart.")
]
Yes = Annotated[bool, typer.Option("--yes", help="With --restart: do not ask.")]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="With --restart: restart even if a check says that the server would not start.")
]


AllowUnsafe = Annotated[
    bool, typer.Option("--allow-unsafe", help="Allow unlocking values that can lose data, by typing their name.")
]
Confirm = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm",
        metavar="NAME",
        show_default=False,
        help="Unlock a value that is not safe; without a terminal, the name to type.",
    ),
]


def set_parameters(
    *,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", show_default=False, help="Names and values to set."),
    ] = None,
    for_how_long: ForHowLong = "",
    scope: ForWhom = "system",
    reason: Reason = "",
    dry_run: DryRun = False,
    persist: Persist = False,
    restart: Restart = False,
    yes: Yes = False,
    anyway: Anyway = False,
    allow_unsafe: AllowUnsafe = False,
    confirm: Confirm = None,
    connection: ConnectionOptions,
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
    from pgtop_tune.base.errors import UsageProblem
    from pgtop_tune.changes.model.change import SYSTEM
    from pgtop_tune.cli.assignments import scope_of, wanted
    from pgtop_tune.cli.changing import ChangeRequest
    from pgtop_tune.cli.machine_half import check_machine_options, split_words

    whom = scope_of(scope)
    if scope != "system" and restart:
        raise UsageProblem("--restart is for parameters of the whole server", "leave --scope out")
    if not assignments:
        sys.exit(_take_over(connection, restart=restart, yes=yes, anyway=anyway, dry_run=dry_run))
    words, settings = split_words(assignments)
    check_machine_options(settings, persist=persist, pending=bool(for_how_long), of_load=whom is None)
    asked = ChangeRequest(
        wanted=wanted(words, SYSTEM if whom is None else whom),
        scope=whom,
        for_s=for_seconds(for_how_long),
        reason=reason,
        dry_run=dry_run,
        allow_unsafe=allow_unsafe,
        confirmed=frozenset(confirm or ()),
        settings=settings,
        persist=persist,
        restart=restart,
        yes=yes,
        anyway=anyway,
    )
    sys.exit(_run(connection, asked))


def reset_parameters(
    *,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False, help="Names to reset.")],
    for_how_long: ForHowLong = "",
    scope: ForWhom = "system",
    reason: Reason = "",
    dry_run: DryRun = False,
    restart: Restart = False,
    yes: Yes = False,
    anyway: Anyway = False,
    allow_unsafe: AllowUnsafe = False,
    confirm: Confirm = None,
    words: ConnectionOptions,
) -> None:
    """Reset parameters: remove their entries from postgresql.auto.conf, or from a role or a database.

    The value of the configuration files, or the server's default, applies again. The journal records the change as for
    `set`, and `revert` restores the entry. The value that applies is judged as a typed one. A setting of the operating
    system gets its boot value, and the command removes our line in sysctl.d.

    Examples: pgtop-tune reset max_wal_size -d bench  ·  pgtop-tune reset work_mem --scope role=reports --dry-run
    """
    from pgtop_tune.base.errors import UsageProblem
    from pgtop_tune.changes.model.change import WantedParameter
    from pgtop_tune.cli.assignments import checked_name, scope_of
    from pgtop_tune.cli.changing import ChangeRequest
    from pgtop_tune.cli.machine_half import split_names

    whom = scope_of(scope)
    if whom is None:
        raise UsageProblem("a load that has not started has nothing to reset", "unset PGOPTIONS")
    if scope != "system" and restart:
        raise UsageProblem("--restart is for parameters of the whole server", "leave --scope out")
    parameters, settings = split_names(names)
    if settings and for_how_long:
        raise UsageProblem(f"{settings[0]} is reset for good", "leave --for out, or `set` it to a value for some time")
    asked = ChangeRequest(
        wanted=tuple(WantedParameter(checked_name(name), None, whom) for name in parameters),
        scope=whom,
        for_s=for_seconds(for_how_long),
        reason=reason,
        dry_run=dry_run,
        allow_unsafe=allow_unsafe,
        confirmed=frozenset(confirm or ()),
        restart=restart,
        yes=yes,
        anyway=anyway,
    )
    if settings:
        _reset_settings(words, settings, asked)
    if parameters:
        sys.exit(_run(words, asked))


def _take_over(words: ConnectionWords, *, restart: bool, yes: bool, anyway: bool, dry_run: bool) -> int:
    from pgtop_tune.base.errors import UsageProblem
    from pgtop_tune.cli.looking import let_in
    from pgtop_tune.cli.restarting import take_over
    from pgtop_tune.cli.signals import run_until_signalled

    if not restart:
        raise UsageProblem("nothing to set", "as in max_wal_size=4GB; --restart alone applies pending parameters")
    return let_in(
        words,
        lambda conninfo: run_until_signalled(take_over(conninfo, yes=yes, anyway=anyway, dry_run=dry_run)),
    )


def _reset_settings(words: ConnectionWords, names: tuple[str, ...], asked: ChangeRequest) -> None:
    from pgtop_tune.cli.looking import let_in
    from pgtop_tune.cli.machine_half import reset_settings
    from pgtop_tune.cli.signals import run_until_signalled

    async def reset(conninfo: ConnInfo) -> int:
        await reset_settings(conninfo, names, asked.reason, dry_run=asked.dry_run)
        return 0

    let_in(words, lambda conninfo: run_until_signalled(reset(conninfo)))


def _run(words: ConnectionWords, asked: ChangeRequest) -> int:
    from pgtop_tune.cli.changing import change
    from pgtop_tune.cli.looking import let_in
    from pgtop_tune.cli.signals import run_until_signalled

    return let_in(words, lambda conninfo: run_until_signalled(change(conninfo, asked)))


def for_seconds(text: str, option: str = "--for") -> float | None:
    """The time of --for, or of another option; None without one.

    Raises:
        UsageProblem: It is no time, or none to wait for.
    """
    from pgtop_tune.base.errors import UsageProblem
    from pgtop_tune.runtime.window import seconds

    if not text:
        return None
    length_s = seconds(text)
    if length_s <= 0:
        raise UsageProblem(f"{option} takes a time above zero", "pass 30s, 5m or 1h30m")
    return length_s
