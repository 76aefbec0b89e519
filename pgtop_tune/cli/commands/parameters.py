"""`pgtop-tune parameters` and `advise`: what is set, and where one would start."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.formats import Format
from pgtop_tune.cli.connecting import ConnectionWords

if TYPE_CHECKING:
    from pgtop_tune.cli.looking import Looked
    from pgtop_tune.cli.parameter_rows import Row


class AdviceFormat(StrEnum):
    """How recommendations are written to stdout."""

    TEXT = "text"
    JSON = "json"
    SQL = "sql"
    CONF = "conf"
    SYSCTL = "sysctl"


class WorkloadWord(StrEnum):
    """What a server is for."""

    WEB = "web"
    OLTP = "oltp"
    WAREHOUSE = "dw"
    MIXED = "mixed"
    DESKTOP = "desktop"


class DiskWord(StrEnum):
    """What the data lie on."""

    HDD = "hdd"
    SSD = "ssd"
    NVME = "nvme"
    SAN = "san"


Group = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="NAME",
        show_default=False,
        help="Only this group, such as wal or memory; os for the machine.",
    ),
]
Workload = Annotated[
    WorkloadWord | None,
    typer.Option("--workload", show_default=False, help="Purpose of the server, if its counters do not show it."),
]
Disk = Annotated[
    DiskWord | None,
    typer.Option("--disk", show_default=False, help="Disk type, if the kernel does not report it correctly."),
]


def parameters(
    target: options.Target = "",
    group: Group = "",
    changed: Annotated[bool, typer.Option("--changed", help="Only values other than the server's default.")] = False,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
    workload: Workload = None,
    disk: Disk = None,
    host: options.Host = "",
    port: options.Port = "",
    user: options.User = "",
    database: options.Database = "",
    no_password: options.NoPassword = False,
    ask_password: options.AskPassword = False,
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

    words = ConnectionWords(target, host, port, user, database, no_password, ask_password)
    looked = _looked(words, workload, disk, 0.0)
    lines: list[str]
    objects: list[dict[str, Any]]
    if group.lower() == machine_rows.GROUP:
        settings = [row for row in machine_rows.machine_rows(looked) if row.changed or not changed]
        lines, objects = machine_rows.table(settings), [machine_rows.as_json(row) for row in settings]
    else:
        rows = [row for row in _rows(looked, group) if row.changed or not changed]
        lines, objects = parameter_rows.table(rows), [parameter_rows.as_json(row) for row in rows]
    if format is Format.JSON:
        write_for_programs()
        lines = json.dumps(objects, ensure_ascii=False, indent=2).splitlines()
    for line in lines:
        say(line)


def advise(
    target: options.Target = "",
    group: Group = "",
    workload: Workload = None,
    disk: Disk = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also parameters that already have the advised value.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="Seconds to sample; under load the WAL rate counts.")
    ] = 3.0,
    format: Annotated[
        AdviceFormat,
        typer.Option("--format", help="text, json, an ALTER SYSTEM script, a conf file, or a file for sysctl.d."),
    ] = AdviceFormat.TEXT,
    host: options.Host = "",
    port: options.Port = "",
    user: options.User = "",
    database: options.Database = "",
    no_password: options.NoPassword = False,
    ask_password: options.AskPassword = False,
) -> None:
    """Suggest starting values for the parameters, with reasons and the results of known calculators.

    Calculators differ up to 20-fold, and none has measured this server: take a starting point and bounds for a search.
    Changes nothing.

    Examples: pgtop-tune advise -d bench  ·  pgtop-tune advise --workload dw --group memory --format sql -d bench  ·
    pgtop-tune advise --group os -d bench
    """
    from pgtop_tune.cli.advice_text import MACHINE_WRITERS, WRITERS, facts_lines
    from pgtop_tune.cli.machine_rows import GROUP, machine_rows
    from pgtop_tune.cli.output import say, write_for_programs
    from pgtop_tune.errors import UsageProblem

    words = ConnectionWords(target, host, port, user, database, no_password, ask_password)
    of_machine = group.lower() == GROUP or (format is AdviceFormat.SYSCTL and not group)
    if format.value not in (MACHINE_WRITERS if of_machine else WRITERS):
        raise UsageProblem(
            f"--format {format.value} and --group {group} do not go together",
            f"sysctl is for --group {GROUP}; sql and conf are for parameters of the server",
        )
    looked = _looked(words, workload, disk, seconds)
    if of_machine:
        settings = [row for row in machine_rows(looked) if row.differs or (everything and row.advice is not None)]
        lines = MACHINE_WRITERS[format.value](settings)
    else:
        rows = [row for row in _rows(looked, group) if row.differs or (everything and row.advice is not None)]
        lines = WRITERS[format.value](rows)
    if format is not AdviceFormat.TEXT:
        write_for_programs()
    for line in (*facts_lines(looked, format.value), *lines):
        say(line)


def _rows(looked: Looked, group: str) -> tuple[Row, ...]:
    from pgtop_tune.cli.parameter_rows import rows_of
    from pgtop_tune.metrics import sections

    sample = looked.interval.now(sections.parameters)
    return rows_of(() if sample is None else sample.parameters, looked.facts, group)


def _looked(words: ConnectionWords, workload: WorkloadWord | None, disk: DiskWord | None, seconds: float) -> Looked:
    """Frames of the server, and facts read off them.

    Raises:
        ConnectionProblem: It is not there or does not let us in.
    """
    from pgtop_tune.advice.facts import DiskKind, Workload
    from pgtop_tune.cli.looking import look_closely

    return look_closely(
        words,
        seconds,
        None if workload is None else Workload(workload.value),
        None if disk is None else DiskKind(disk.value),
    )
