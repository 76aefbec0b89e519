"""`check` of several servers: by services of a service file, or by the connections of a file."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.cli.exit_codes import ExitCode, exit_code
from pgtop_tune.cli.output import say, say_as_it_is, tell
from pgtop_tune.errors import UsageProblem
from pgtop_tune.health.check import Severity
from pgtop_tune.health.gather import gather
from pgtop_tune.health.looking import Wanted
from pgtop_tune.health.many import ServerResult, check_servers, servers_document, table_lines
from pgtop_tune.health.report import Report
from pgtop_tune.paths import opened
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve

_SECTION: Final = re.compile(r"^\[([^\]]+)\]\s*$", re.MULTILINE)
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


def servers_of(wanted: ServersWanted) -> dict[str, ConnInfo]:
    """Connections by name, without a question for a password.

    Raises:
        UsageProblem: A file cannot be read, a pattern means no service, or libpq refuses a connection.
    """
    targets: dict[str, str] = {}
    if wanted.services:
        file = wanted.service_file or Path(os.environ.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf")
        # libpq takes the file of a service from here.
        os.environ["PGSERVICEFILE"] = str(file)
        known = list(dict.fromkeys(_SECTION.findall(_read(file, "--service-file names it"))))
        for pattern in wanted.services:
            meant = [name for name in known if fnmatchcase(name, pattern)]
            if not meant:
                raise UsageProblem(f"{file} has no service {pattern!r}", f"it has {', '.join(known[:10]) or 'none'}")
            targets |= {name: f"service='{_escaped(name)}'" for name in meant}
    if wanted.file is not None:
        lines = [line.strip() for line in _read(wanted.file, "--servers names it").splitlines()]
        targets |= {line: line for line in lines if line and not line.startswith("#")}
    if not targets:
        raise UsageProblem(f"{wanted.file} names no server", "write one connection per line")
    if len(targets) > _MOST:
        raise UsageProblem(f"{len(targets)} servers", f"{_MOST} at most")
    found: dict[str, ConnInfo] = {}
    for name, target in targets.items():
        conninfo = resolve(target)
        # What was typed may hold a password.
        found[name if target != name else conninfo.describe()] = conninfo
    return found


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")


def _read(path: Path, hint: str) -> str:
    try:
        with opened(path) as file:
            return file.read(_LONGEST).decode("utf-8")
    except OSError as problem:
        raise UsageProblem(f"{path} cannot be read: {problem.strerror}", hint) from None
    except UnicodeDecodeError:
        raise UsageProblem(f"{path} is not text", hint) from None


def check_all(servers: ServersWanted, wanted: Wanted, format: str, fail_on: Severity | None, *, strict: bool) -> int:
    """Checks them, prints the table or the object, and gives the exit status of the worst.

    Raises:
        UsageProblem: As `servers_of`; or a format for one server.
    """
    if format not in _FORMATS:
        raise UsageProblem(f"--format {format} is for one server", f"several have {' and '.join(_FORMATS)}")
    conninfos = servers_of(servers)

    async def look(name: str) -> Report:
        facts = await gather(conninfos[name], wanted.checks)
        return await asyncio.to_thread(wanted.judged, facts)

    def told(result: ServerResult) -> None:
        tell(f"{result.name}: {'checked' if result.report else result.words}")

    results = asyncio.run(check_servers(list(conninfos), look, told))
    if format == "json":
        say_as_it_is(json.dumps(servers_document(results), ensure_ascii=False, indent=2))
    else:
        for line in table_lines(results):
            say(line)
    return worst_status(results, fail_on, strict=strict)


def worst_status(results: Sequence[ServerResult], fail_on: Severity | None, *, strict: bool) -> int:
    """The exit status of the first server that could not be checked; else 1 where a report fails, 0 where none does."""
    for result in results:
        if result.problem is not None:
            return exit_code(result.problem)
    reports = [result.report for result in results if result.report is not None]
    failed = any(each.fails(fail_on, strict=strict) for each in reports)
    return ExitCode.FAILED if failed else ExitCode.OK
