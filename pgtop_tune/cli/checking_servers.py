"""`check` of several servers: by services of a service file, or by the connections of a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.paths import content_of
from pgtop_tune.base.units import counted
from pgtop_tune.cli.connecting import may_have_password
from pgtop_tune.cli.exit_codes import ExitCode, exit_code
from pgtop_tune.cli.output import say, say_whole, tell
from pgtop_tune.health.check import Severity
from pgtop_tune.health.formats.for_people import text_lines
from pgtop_tune.health.gather import gather
from pgtop_tune.health.looking import Wanted
from pgtop_tune.health.many import ServerResult, check_servers, servers_lines, table_lines
from pgtop_tune.health.report import Report
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.process.handed_on import inherited_password

_MOST: Final = 500
_LONGEST: Final = 1024 * 1024
_FORMATS: Final = ("text", "json")


class ServersWanted(Struct, frozen=True):
    """Which servers.

    Attributes:
        services: Patterns of names in the service file.
        service_file: None is libpq's: PGSERVICEFILE, else ~/.pg_service.conf.
        file: Connections, one per line.
    """

    services: tuple[str, ...] = ()
    service_file: Path | None = None
    file: Path | None = None


class _Asked(Struct, frozen=True):
    """A server as it is asked for.

    Attributes:
        place: "line 3 of FILE".
        service: "" for a line of a file of connections.
        target: As `resolve` takes it; may hold a password.
    """

    place: str
    service: str
    target: str


def servers_of(wanted: ServersWanted) -> dict[str, ConnInfo | UsageProblem]:
    """Connections by name, without a question for a password, or why libpq refuses one.

    Raises:
        UsageProblem: A file cannot be read or names no server, or a pattern means no service.
    """
    asked = [*_of_services(wanted), *_of_file(wanted.file)]
    if len(asked) > _MOST:
        raise UsageProblem(f"{len(asked)} servers", f"{_MOST} at most")
    found: dict[str, ConnInfo | UsageProblem] = {}
    for server in asked:
        conninfo: ConnInfo | UsageProblem
        try:
            conninfo = resolve(server.target, inherits=False)
            # What was typed may hold a password.
            name = server.service or conninfo.describe()
        except UsageProblem as problem:
            conninfo, name = problem, server.service or server.place
        while name in found:
            name = f"{name} ({server.place})"
        found[name] = conninfo
    return _with_inherited_password(found)


def _with_inherited_password(found: dict[str, ConnInfo | UsageProblem]) -> dict[str, ConnInfo | UsageProblem]:
    """The connections with PGPASSWORD where nothing else is found for them and somebody agrees; asks once for all."""
    inherited = inherited_password()
    lacking = {name: each for name, each in found.items() if isinstance(each, ConnInfo) and each.password is None}
    if inherited is None or not lacking or not may_have_password(counted(len(lacking), "server")):
        return found
    return found | {name: each.with_password(inherited) for name, each in lacking.items()}


def _of_services(wanted: ServersWanted) -> list[_Asked]:
    if not wanted.services:
        return []
    file = wanted.service_file or Path(os.environ.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf")
    # libpq takes the file of a service from here.
    os.environ["PGSERVICEFILE"] = str(file)
    known: dict[str, int] = {}
    for name, number in _sections(_read(file, "--service-file names it")):
        # libpq takes the first of a name.
        known.setdefault(name, number)
    meant: dict[str, int] = {}
    for pattern in wanted.services:
        matching = {name: number for name, number in known.items() if fnmatchcase(name, pattern)}
        if not matching:
            raise UsageProblem(f"{file} has no service {pattern!r}", f"it has {', '.join([*known][:10]) or 'none'}")
        meant |= matching
    return [_Asked(f"line {number} of {file}", name, f"service='{_escaped(name)}'") for name, number in meant.items()]


def _sections(text: str) -> Iterator[tuple[str, int]]:
    """Names of services and where they begin. Source: libpq, parseServiceFileInfo()."""
    for number, line in enumerate(text.split("\n"), start=1):
        name, closed, _ = line.strip().removeprefix("[").partition("]")
        if line.lstrip().startswith("[") and closed and name:
            yield name, number


def _of_file(file: Path | None) -> list[_Asked]:
    if file is None:
        return []
    targets: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, _read(file, "--servers names it").split("\n")), start=1):
        if line and not line.startswith("#"):
            # A line that stands twice is one server.
            targets.setdefault(line, number)
    if not targets:
        raise UsageProblem(f"{file} names no server", "write one connection per line")
    return [_Asked(f"line {number} of {file}", "", line) for line, number in targets.items()]


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


class ServersShown(Struct, frozen=True):
    """How the results of several servers are wanted.

    Attributes:
        format: "text" or "json".
        details: The report of each below the table, with everything behind its findings (text).
        fail_on: From which severity on the exit status is 1; None for never.
        strict: What is unknown counts as well.
    """

    format: str
    details: bool
    fail_on: Severity | None
    strict: bool


def check_all(servers: ServersWanted, wanted: Wanted, shown: ServersShown, host_source: HostSource) -> int:
    """Checks them, prints the table or the object, and gives the exit status of the worst.

    Raises:
        UsageProblem: As `servers_of`; or a format for one server.
        KeyboardInterrupt: After the results so far.
    """
    if shown.format not in _FORMATS:
        raise UsageProblem(f"--format {shown.format} is for one server", f"several have {' and '.join(_FORMATS)}")
    conninfos = servers_of(servers)
    done: dict[str, ServerResult] = {}

    async def look(name: str) -> Report:
        conninfo = conninfos[name]
        if isinstance(conninfo, UsageProblem):
            raise conninfo
        facts = await gather(conninfo, wanted.checks, host_source=host_source)
        return await asyncio.to_thread(wanted.judged, facts)

    def told(result: ServerResult) -> None:
        done[result.name] = result
        tell(f"{result.name}: {'checked' if result.report else result.words}")

    try:
        results = asyncio.run(check_servers(list(conninfos), look, told))
    except KeyboardInterrupt:
        _show(_with_unfinished(done, conninfos), shown)
        raise
    _show(results, shown)
    return worst_status(results, shown.fail_on, strict=shown.strict)


def _with_unfinished(done: Mapping[str, ServerResult], names: Mapping[str, object]) -> list[ServerResult]:
    interrupted = PgtopError("interrupted")
    return [done.get(name) or ServerResult(name, problem=interrupted) for name in names]


def _show(results: Sequence[ServerResult], shown: ServersShown) -> None:
    if shown.format == "json":
        for line in servers_lines(results):
            say_whole(line)
        return
    for line in table_lines(results):
        say(line)
    for result in results if shown.details else ():
        if result.report is not None:
            say()
            say(result.name)
            for line in text_lines(result.report, everything=True):
                say_whole(line)


def worst_status(results: Sequence[ServerResult], fail_on: Severity | None, *, strict: bool) -> int:
    """The exit status of the first server that could not be checked; else 1 where a report fails, 0 where none does."""
    for result in results:
        if result.problem is not None:
            return exit_code(result.problem)
    reports = [result.report for result in results if result.report is not None]
    failed = any(each.fails(fail_on, strict=strict) for each in reports)
    return ExitCode.FAILED if failed else ExitCode.OK
