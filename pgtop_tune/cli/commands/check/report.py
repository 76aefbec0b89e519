"""`check` of one server or of several: one look with measured limits, or several looks; and its report."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import typer
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, PgtopError, UsageProblem
from pgtop_tune.base.paths import content_of
from pgtop_tune.base.units import counted, wall_clock
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.commands.check import CheckRequest, FailOn, ReportFormat
from pgtop_tune.cli.connections import let_in, may_have_password, pooler_addresses
from pgtop_tune.cli.exit_codes import ExitCode, exit_code
from pgtop_tune.cli.options import for_seconds
from pgtop_tune.cli.output import can_ask, complain, say, say_whole, tell, whole, write_for_programs, write_text
from pgtop_tune.health.against import is_recording, only_new, read_former_check, recorded_facts
from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.formats.for_people import about, text_lines
from pgtop_tune.health.formats.writers import WRITERS, ReportOptions
from pgtop_tune.health.gather import gather
from pgtop_tune.health.looks import LookSeries, ServerResult, check_servers, servers_lines, table_lines
from pgtop_tune.health.measure import LIMIT_S, busy, keep, measure
from pgtop_tune.health.project_file import ProjectWishes, project_wishes
from pgtop_tune.health.registry import catalogue, chosen
from pgtop_tune.health.report import Report
from pgtop_tune.health.setup import CheckSetup, OperatorClaims
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.process.handed_on import inherited_password

_LEAST_MEMORY: Final = 256 << 20
_MOST_MEMORY: Final = 1 << 50


def run_check(request: CheckRequest) -> int:
    """Check, write the report, and return the exit status.

    Raises:
        UsageProblem: Options contradict each other, or a choice of checks, a threshold or a file is wrong.
        RecordingProblem: The recording cannot be read.
        ConnectionProblem: The server is not there, or refuses the login.
    """
    wishes = wishes_of(request)
    if request.list_:
        for line in catalogue(chosen(wishes.select, wishes.ignore)):
            say(line.rstrip())
        return ExitCode.OK
    limit = None if wishes.fail_on == FailOn.NEVER else Severity(wishes.fail_on)
    machine = _given_machine(request)
    if request.services or request.servers:
        if request.against or request.measure or request.watch or request.output or request.pooler:
            raise UsageProblem("--against, --measure, --watch, --pooler and -o are for one server", "leave them out")
        connection = request.connection
        if any(
            (
                connection.target,
                connection.host,
                connection.port,
                connection.user,
                connection.database,
                connection.ask_password,
            )
        ):
            raise UsageProblem("--services and --servers already name the servers", "leave the connection options out")
        return check_all(request, CheckSetup.of(wishes, told=machine), limit)
    if request.service_file is not None:
        raise UsageProblem(
            "--service-file needs --services", "add --services 'prod-*' for some services, or '*' for all"
        )
    if request.watch:
        if request.against is not None or request.measure:
            raise UsageProblem(
                "--watch cannot be combined with --against or --measure", "leave --watch out, or the other option"
            )
        report = watch(request, wishes, machine)
    else:
        report = check_once(request, wishes, machine)
    if request.report_format is not ReportFormat.TEXT and request.output is None:
        write_for_programs()
    to_terminal = sys.stdout.isatty() and not request.output
    width = shutil.get_terminal_size().columns if to_terminal else None
    wish = ReportOptions(request.verbose, limit, width, request.strict)
    lines = WRITERS[request.report_format.value](report, wish)
    if request.output is not None:
        write_text(request.output, "".join(f"{whole(line)}\n" for line in lines), force=request.force)
    for line in lines if request.output is None else ():
        say_whole(line)
    return ExitCode.FAILED if report.fails(limit, strict=request.strict) else ExitCode.OK


def wishes_of(request: CheckRequest) -> ProjectWishes:
    """Return the wishes of the command line and of the project's file. Raises UsageProblem for the file."""
    project = project_wishes(request.config)
    return ProjectWishes(
        select=tuple(request.select or project.select),
        ignore=(*project.ignore, *(request.ignore or ())),
        fail_on=request.fail_on or project.fail_on or FailOn.WARNING,
        thresholds=(*project.thresholds, *(request.threshold or ())),
        accept=project.accept,
    )


def _given_machine(request: CheckRequest) -> OperatorClaims:
    """Return the operator's description of the machine.

    Raises:
        UsageProblem: The size is none of a machine, or memory and CPUs are not given together.
    """
    memory, cpus = request.host_memory, request.host_cpus
    if bool(memory) != bool(cpus):
        raise UsageProblem(
            "--host-memory and --host-cpus need each other", "pass both: --host-memory 64GB --host-cpus 16"
        )
    size = int(parse(memory, "B", integer=True)) if memory else None
    if size is not None and not _LEAST_MEMORY <= size <= _MOST_MEMORY:
        raise UsageProblem(f"--host-memory {memory} is not a plausible memory size", "pass a size with its unit: 64GB")
    return OperatorClaims(memory_bytes=size, cpus=cpus, disk=request.disk, workload=request.profile)


# Several servers: services of a service file, or connections of a file.

_MOST: Final = 500
_LONGEST: Final = 1024 * 1024
_FORMATS: Final = (ReportFormat.TEXT, ReportFormat.JSON)


class _NamedServer(Struct, frozen=True):
    """A server that a file names.

    Attributes:
        line: "line 3 of FILE".
        service: "" for a line of a file of connections.
        target: As `resolve` takes it; may hold a password.
    """

    line: str
    service: str
    target: str


def servers_of(request: CheckRequest) -> dict[str, ConnInfo | UsageProblem]:
    """Return connections by name, never asking for a password; libpq's problem stands for a refused one.

    PGPASSWORD is for those without another password, if the operator agrees for all of them.

    Raises:
        UsageProblem: A file cannot be read or names no server, or a pattern fits no service.
    """
    servers = [*_of_services(request), *_of_file(request.servers)]
    if len(servers) > _MOST:
        raise UsageProblem(f"{len(servers)} servers are too many", f"check at most {_MOST} at once")
    conninfos: dict[str, ConnInfo | UsageProblem] = {}
    for server in servers:
        conninfo: ConnInfo | UsageProblem
        try:
            conninfo = resolve(server.target, inherits=False)
            # The target as typed may hold a password.
            name = server.service or conninfo.describe()
        except UsageProblem as problem:
            conninfo, name = problem, server.service or server.line
        while name in conninfos:
            name = f"{name} ({server.line})"
        conninfos[name] = conninfo
    password = inherited_password()
    lacking = {
        name: conninfo
        for name, conninfo in conninfos.items()
        if isinstance(conninfo, ConnInfo) and conninfo.password is None
    }
    if password is None or not lacking or not may_have_password(counted(len(lacking), "server")):
        return conninfos
    return conninfos | {name: conninfo.with_password(password) for name, conninfo in lacking.items()}


def _of_services(request: CheckRequest) -> list[_NamedServer]:
    if not request.services:
        return []
    file = request.service_file or Path(os.environ.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf")
    # libpq takes the file of a service from here.
    os.environ["PGSERVICEFILE"] = str(file)
    services: dict[str, int] = {}
    # Source: libpq, parseServiceFileInfo(). libpq takes the first of a name.
    for number, line in enumerate(_read(file, "pass another file with --service-file").split("\n"), start=1):
        name, closed, _ = line.strip().removeprefix("[").partition("]")
        if line.lstrip().startswith("[") and closed and name:
            services.setdefault(name, number)
    chosen_services: dict[str, int] = {}
    for pattern in request.services:
        matching = {name: number for name, number in services.items() if fnmatchcase(name, pattern)}
        if not matching:
            raise UsageProblem(
                f"{file} has no service {pattern!r}", f"the file has {', '.join([*services][:10]) or 'none'}"
            )
        chosen_services |= matching
    return [
        _NamedServer(f"line {number} of {file}", name, f"service='{_escaped(name)}'")
        for name, number in chosen_services.items()
    ]


def _of_file(file: Path | None) -> list[_NamedServer]:
    if file is None:
        return []
    targets: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, _read(file, "pass another file with --servers").split("\n")), start=1):
        if line and not line.startswith("#"):
            # A line that stands twice is one server.
            targets.setdefault(line, number)
    if not targets:
        raise UsageProblem(f"{file} names no server", "write one connection per line")
    return [_NamedServer(f"line {number} of {file}", "", line) for line, number in targets.items()]


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")


def _read(path: Path, hint: str) -> str:
    try:
        # Some editors put a byte order mark before a text.
        return content_of(path, _LONGEST).decode("utf-8-sig")
    except OSError as problem:
        raise UsageProblem(f"{path} cannot be read: {problem.strerror}", hint) from None
    except UnicodeDecodeError:
        raise UsageProblem(f"{path} is not text", hint) from None


def check_all(request: CheckRequest, checks: CheckSetup, fail_on: Severity | None) -> int:
    """Check several servers, print their table or JSON object, and return the exit status of the worst.

    Raises:
        UsageProblem: As `servers_of`; or the format is for one server.
        KeyboardInterrupt: After the results so far.
    """
    if request.report_format not in _FORMATS:
        raise UsageProblem(
            f"--format {request.report_format} is for one server", f"for several, use {' or '.join(_FORMATS)}"
        )
    conninfos = servers_of(request)
    done: dict[str, ServerResult] = {}

    async def look(name: str) -> Report:
        conninfo = conninfos[name]
        if isinstance(conninfo, UsageProblem):
            raise conninfo
        facts = await gather(conninfo, checks.checks, host_source=request.host_source)
        return await asyncio.to_thread(checks.judged, facts)

    def take(result: ServerResult) -> None:
        done[result.name] = result
        tell(f"{result.name}: {'checked' if result.report else result.words}")

    try:
        results = asyncio.run(check_servers(list(conninfos), look, take))
    except KeyboardInterrupt:
        interrupted = PgtopError("interrupted")
        _show([done.get(name) or ServerResult(name, problem=interrupted) for name in conninfos], request)
        raise
    _show(results, request)
    return worst_status(results, fail_on, strict=request.strict)


def _show(results: Sequence[ServerResult], request: CheckRequest) -> None:
    if request.report_format is ReportFormat.JSON:
        for line in servers_lines(results):
            say_whole(line)
        return
    for line in table_lines(results):
        say(line)
    for result in results if request.verbose else ():
        if result.report is not None:
            say()
            say(result.name)
            for line in text_lines(result.report, everything=True):
                say_whole(line)


def worst_status(results: Sequence[ServerResult], fail_on: Severity | None, *, strict: bool) -> int:
    """Return the exit status of the first server that could not be checked; else 1 where a report fails, 0 if none."""
    for result in results:
        if result.problem is not None:
            return exit_code(result.problem)
    reports = [result.report for result in results if result.report is not None]
    failed = any(report.fails(fail_on, strict=strict) for report in reports)
    return ExitCode.FAILED if failed else ExitCode.OK


_EVERY_S: Final = 30.0


def check_once(request: CheckRequest, wishes: ProjectWishes, machine: OperatorClaims) -> Report:
    """Return the report of one look, or of a recording.

    Raises:
        UsageProblem: The choice of checks, a threshold, a file or a pooler is wrong.
        RecordingProblem: The recording cannot be read.
        ConnectionProblem: The server is not there, or refuses the login.
    """
    poolers = pooler_addresses(request.pooler)
    checks = CheckSetup.of(wishes, proposes=not wishes.select, told=machine)
    against = request.against
    if against is not None and is_recording(against):
        return checks.judged(recorded_facts(against))
    former = None if against is None else read_former_check(against)

    async def gather_facts(conninfo: ConnInfo) -> CheckFacts:
        facts = await gather(conninfo, checks.checks, poolers=poolers, host_source=request.host_source)
        async with aclosing(PostgresControl(conninfo)) as control:
            await leave_watchdogs(control, HostControl(), None, tell)
        return facts

    def look(conninfo: ConnInfo) -> CheckFacts:
        facts = asyncio.run(gather_facts(conninfo))
        return _measured(conninfo, facts, request.yes) if request.measure else facts

    facts = let_in(request.connection, look)
    report = checks.judged(facts)
    return report if former is None else only_new(report, former, checks.near(facts))


def watch(request: CheckRequest, wishes: ProjectWishes, machine: OperatorClaims) -> Report:
    """Return the findings of several looks.

    Raises:
        UsageProblem: As `check_once`.
        ConnectionProblem: The server is not there at the first look.
    """
    checks, poolers = CheckSetup.of(wishes, proposes=not wishes.select, told=machine), pooler_addresses(request.pooler)
    for_s = for_seconds(request.watch, "--watch") or 0.0
    looks, started_s = LookSeries(checks.accept), time.monotonic()

    async def look(conninfo: ConnInfo) -> None:
        facts = await gather(conninfo, checks.checks, poolers=poolers, host_source=request.host_source)
        report, first = checks.found(facts), not looks.count
        if not first and looks.of_another_server(report):
            raise ConnectionProblem(f"another server answers at {report.target}")
        for kind, findings in zip(("new", "gone"), looks.take(report), strict=True):
            for check, finding in () if first else findings:
                tell(f"{wall_clock(report.at_ms)}  {kind}  {finding.severity}  {check.id}  {about(finding)}")
        tell(f"{wall_clock(report.at_ms)}  check {looks.count}: {looks.standing} findings")

    async def look_repeatedly(conninfo: ConnInfo) -> None:
        while True:
            began_s = time.monotonic()
            try:
                await look(conninfo)
            except ConnectionProblem as problem:
                if not looks.count:
                    raise
                looks.miss(problem.message)
                tell(f"{wall_clock(int(time.time() * 1000))}  no answer from the server: {problem.message}")
            pause_s = until_next_look_s(began_s, started_s + for_s, time.monotonic())
            if pause_s is None:
                return
            await asyncio.sleep(pause_s)

    try:
        let_in(request.connection, lambda conninfo: asyncio.run(look_repeatedly(conninfo)))
    except KeyboardInterrupt:
        if not looks.count:
            raise
    return looks.together()


def until_next_look_s(began_s: float, end_s: float, now_s: float) -> float | None:
    """Return the pause after a look that began at `began_s`; the last look is at the end, None after it."""
    return None if now_s >= end_s else min(max(began_s + _EVERY_S - now_s, 0.0), end_s - now_s)


def _measured(conninfo: ConnInfo, facts: CheckFacts, yes: bool) -> CheckFacts:
    """Return the facts with measured limits.

    Raises:
        UsageProblem: The server is busy, and the operator does not agree to measure it all the same.
    """
    disturbs = busy(facts)
    if disturbs and not yes:
        message = f"the server is busy: {'; '.join(disturbs)}"
        if not can_ask():
            raise UsageProblem(message, "pass --yes to measure anyway")
        tell(message)
        if not typer.confirm("Measure it anyway?", err=True):
            raise UsageProblem("not measured", "without --measure nothing is written")
    tell(f"measuring, up to {LIMIT_S:.0f} s")
    measured = asyncio.run(measure(conninfo, facts))
    try:
        keep(facts, measured)
    except UsageProblem as problem:
        complain(problem)
    return replace(facts, measured=measured)
