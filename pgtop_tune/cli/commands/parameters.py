"""`pgtop-tune parameters` and `advise`: present values and starting values."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.shared import Format
from pgtop_tune.cli.commands.set import ForHowLong, Restart, for_seconds
from pgtop_tune.cli.connecting import ConnectionWords

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgtop_tune.advice.facts import Advice
    from pgtop_tune.cli.advice import ApplyTerms
    from pgtop_tune.cli.looking import Looked
    from pgtop_tune.cli.parameter_rows import ParameterRow


class AdviceFormat(StrEnum):
    """How recommendations are written to stdout."""

    TEXT = "text"
    JSON = "json"
    SQL = "sql"
    CONF = "conf"
    SYSCTL = "sysctl"
    ANSIBLE = "ansible"


Group = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="NAME",
        show_default=False,
        help="Only this group, such as wal or memory; os means the machine.",
    ),
]


def parameters(
    *,
    group: Group = "",
    changed: Annotated[bool, typer.Option("--changed", help="Only values other than the server's default.")] = False,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
    profile: options.Profile = None,
    disk: options.Disk = None,
    words: ConnectionWords,
) -> None:
    """Show the parameters worth tuning on this server: value, unit, context, source, and advice.

    Takes two seconds. `context` says when a change takes effect: sighup with a reload, postmaster with a restart, user
    and superuser also for a session. `advise` gives the reasons. With --group os: the settings of the operating
    system, now and at boot.

    Examples: pgtop-tune parameters -d bench  ·  pgtop-tune parameters --group wal --changed --format json -d bench  ·
    pgtop-tune parameters --group os -d bench
    """
    import json

    from pgtop_tune.cli import machine_rows, parameter_rows
    from pgtop_tune.cli.output import say, write_for_programs

    looked = _looked(words, profile, disk, 0.0)
    lines: list[str]
    objects: list[dict[str, Any]]
    if group.lower() == machine_rows.GROUP:
        settings = [row for row in machine_rows.machine_rows(looked) if row.changed or not changed]
        lines, objects = machine_rows.table(settings), [machine_rows.as_json(row) for row in settings]
    else:
        rows = [row for row in _rows(looked, group, looked.proposal.server_half()) if row.changed or not changed]
        lines, objects = parameter_rows.table(rows), [parameter_rows.as_json(row) for row in rows]
    if format is Format.JSON:
        write_for_programs()
        lines = json.dumps(objects, ensure_ascii=False, indent=2).splitlines()
    for line in lines:
        say(line)


def advise(
    *,
    group: Group = "",
    profile: options.Profile = None,
    disk: options.Disk = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include parameters that already have the advised value.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="Seconds to sample; under load the WAL rate counts.")
    ] = 3.0,
    format: Annotated[
        AdviceFormat,
        typer.Option(
            "--format",
            help="text, json, ALTER SYSTEM, a conf file, a file for sysctl.d, or variables for Ansible.",
        ),
    ] = AdviceFormat.TEXT,
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply the advised values as one change set, the machine's half first.")
    ] = False,
    for_how_long: ForHowLong = "",
    restart: Restart = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --apply: do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --apply: show the difference and the commands; change nothing.")
    ] = False,
    words: ConnectionWords,
) -> None:
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
    from pgtop_tune.base.errors import UsageProblem
    from pgtop_tune.cli.advice import MACHINE_WRITERS, WRITERS, facts_lines
    from pgtop_tune.cli.machine_rows import GROUP, machine_rows
    from pgtop_tune.cli.output import say, write_for_programs

    of_machine = group.lower() == GROUP or (format is AdviceFormat.SYSCTL and not group)
    if format.value not in (MACHINE_WRITERS if of_machine else WRITERS):
        raise UsageProblem(
            f"--format {format.value} and --group {group} do not go together",
            f"sysctl is for --group {GROUP}; sql and conf are for parameters of the server",
        )
    if not apply and (for_how_long or restart or yes or dry_run):
        raise UsageProblem("--for, --restart, --yes and --dry-run are for --apply", "add --apply, or leave them out")
    if apply and format is not AdviceFormat.TEXT:
        raise UsageProblem("--apply writes no other format", "leave --format out")
    looked = _looked(words, profile, disk, seconds)
    if apply:
        from pgtop_tune.cli.advice import ApplyTerms

        terms = ApplyTerms(for_s=for_seconds(for_how_long), dry_run=dry_run, restart=restart, yes=yes)
        sys.exit(_applied(words, looked, group, terms))
    if of_machine:
        settings = [row for row in machine_rows(looked) if row.differs or (everything and row.advice is not None)]
        lines = MACHINE_WRITERS[format.value](settings)
    else:
        advised = looked.proposal.server_half()
        rows = [
            row
            for row in _rows(looked, group, advised)
            if row.differs or row.out_of_reach or (everything and row.advice is not None)
        ]
        lines = WRITERS[format.value](rows)
    if format is not AdviceFormat.TEXT:
        write_for_programs()
    for line in (*facts_lines(looked, format.value), *lines):
        say(line)


def _applied(words: ConnectionWords, looked: Looked, group: str, terms: ApplyTerms) -> int:
    """Both halves, or that of the group; without the server's machine its half alone."""
    from pgtop_tune.cli.advice import advised_with, apply, settings_to_make
    from pgtop_tune.cli.machine_rows import GROUP, machine_rows
    from pgtop_tune.model.absence import Unavailable

    of_machine, of_server = group.lower() in ("", GROUP), group.lower() != GROUP
    with_machine = of_machine and (not isinstance(looked.machine, Unavailable) or not of_server)
    # Only what takes a restart of the server gives memory back.
    differing = _rows(looked, group, looked.proposal.parameters) if of_server else ()
    restarts = terms.restart and any(row.differs for row in differing)
    listed = machine_rows(looked, with_server=of_server, with_restart=restarts) if with_machine else ()
    half = settings_to_make(listed, looked.proposal.plan, lasting=terms.for_s is None)
    rows = _rows(looked, group, advised_with(half, looked)) if of_server else ()
    return apply(words, looked, rows, half, terms)


def _rows(looked: Looked, group: str, advised: Mapping[str, Advice]) -> tuple[ParameterRow, ...]:
    from pgtop_tune.cli.parameter_rows import rows_of
    from pgtop_tune.metrics import sections

    sample = looked.interval.now(sections.parameters)
    return rows_of(() if sample is None else sample.parameters, advised, group)


def _looked(
    words: ConnectionWords, profile: options.WorkloadWord | None, disk: options.DiskWord | None, seconds: float
) -> Looked:
    """Frames of the server, and facts read off them.

    Raises:
        ConnectionProblem: It is not there or does not let us in.
    """
    from pgtop_tune.advice.facts import DiskKind, Workload
    from pgtop_tune.cli.looking import look_closely

    return look_closely(
        words,
        seconds,
        None if profile is None else Workload(profile.value),
        None if disk is None else DiskKind(disk.value),
    )
