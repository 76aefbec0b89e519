"""Catalogues of the backup tools of this machine, asked with commands that only read, as the account that owns the
tool.

A tool is asked where its program and a configuration are found. As root it runs as the owner of the data directory,
Barman as its own account; without root it runs as the user of this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.model.machine import BackupCatalogue, BackupTools, ToolBackup
from pgtop_tune.process.guarded_program import start_guarded_async
from pgtop_tune.process.mount_namespace import stat_of

# Catalogues of pgBackRest, Barman and WAL-G as JSON. Pure; the text is foreign.
#
# Sources: pgbackrest info --output=json (command reference, info.c); barman -f json list-backups (output.py,
# JsonOutputWriter); wal-g backup-list --detail --json (backup_list_handler.go, BackupDetail).

PGBACKREST, BARMAN, WALG = "pgBackRest", "Barman", "WAL-G"
_DELTA: Final = "_D_"
"""Part of the name of a WAL-G backup that builds on others."""
_UNDER_WAY: Final = frozenset({"EMPTY", "STARTED", "SYNCING", "WAITING_FOR_WALS"})
"""States of a backup of Barman that may still become a good one; without its WAL it cannot be restored."""
_FORMS: Final = (
    "%a %b %d %H:%M:%S %Y",
    "%Y-%m-%d %H:%M:%S.%f%z",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%dT%H:%M:%S.%f%z",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y%m%dT%H%M%S",
)
_FRACTION: Final = re.compile(r"\.(\d{1,6})\d*")
_LATEST_S: Final = 32_503_680_000.0
"""The year 3000: a later moment is an error."""


def pgbackrest(text: str) -> tuple[BackupCatalogue, ...]:
    """Return the stanzas of a catalogue. Raises ValueError, one line, where the text is no catalogue."""
    return tuple(
        BackupCatalogue(
            tool=PGBACKREST,
            name=_text(stanza, "name"),
            system_identifiers=frozenset(str(row.get("system-id")) for row in _list(stanza, "db")),
            backups=tuple(
                ToolBackup(
                    label=_text(backup, "label"),
                    full=backup.get("type") == "full",
                    ended_ms=_seconds(_dict(backup, "timestamp").get("stop")),
                    failed="the backup contains pages with checksum failures" if backup.get("error") is True else "",
                )
                for backup in _list(stanza, "backup")
            ),
        )
        for stanza in _rows(_parsed(text))
    )


def barman(text: str) -> tuple[BackupCatalogue, ...]:
    """Return the servers of a catalogue. Raises ValueError, one line, where the text is no catalogue."""
    parsed = _parsed(text)
    if not isinstance(parsed, dict):
        raise ValueError("expected an object with a list per server")
    return tuple(
        BackupCatalogue(
            tool=BARMAN,
            name=str(name),
            system_identifiers=frozenset(
                str(backup["system_id"]) for backup in _rows(backups) if backup.get("system_id") not in (None, "")
            ),
            backups=tuple(map(_barman_backup, _rows(backups))),
        )
        for name, backups in parsed.items()
        if isinstance(backups, list)
    )


def _barman_backup(backup: Mapping[str, Any]) -> ToolBackup:
    status = _text(backup, "status")
    ended, failed = backup.get("end_time_timestamp"), status not in ("", "DONE", *_UNDER_WAY)
    moment = (
        _seconds(float(ended) if isinstance(ended, str) and ended.isdecimal() else ended)
        or _moment(_text(backup, "end_time"))
        or _moment(_text(backup, "backup_id"))
    )
    return ToolBackup(
        label=_text(backup, "backup_id"),
        full=backup.get("parent_backup_id") is None and backup.get("backup_type") != "incremental",
        ended_ms=None if status in _UNDER_WAY else moment,
        failed=f"status {status}" if failed else "",
    )


def walg(text: str) -> tuple[BackupCatalogue, ...]:
    """Return the one cluster of a catalogue. Raises ValueError, one line, where the text is no catalogue."""
    rows = _rows(_parsed(text) or [])
    identifiers = {str(row["system_identifier"]) for row in rows if row.get("system_identifier") not in (None, 0, "")}
    return (
        BackupCatalogue(
            tool=WALG,
            name=next((_text(row, "hostname") for row in rows if row.get("hostname")), ""),
            system_identifiers=frozenset(identifiers),
            backups=tuple(
                ToolBackup(
                    label=_text(row, "backup_name") or _text(row, "name"),
                    full=_DELTA not in (_text(row, "backup_name") or _text(row, "name")),
                    ended_ms=_moment(_text(row, "finish_time") or _text(row, "time") or _text(row, "modified")),
                )
                for row in rows
            ),
        ),
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None


def _rows(rows: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("expected a list of objects")
    return rows


def _list(row: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    return _rows(row.get(name, []))


def _dict(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def _seconds(value: object) -> int | None:
    """Return milliseconds of seconds since the epoch; None where the value is no such number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value * 1000) if is_number and 0 < value < _LATEST_S else None  # type: ignore[operator]


def _moment(text: str) -> int | None:
    """Return the milliseconds since the epoch of a moment as these tools write it; without a zone it is local."""
    written = _FRACTION.sub(lambda fraction: f".{fraction[1]}", text.strip().replace("Z", "+00:00"))
    for form in _FORMS:
        try:
            moment = datetime.strptime(written, form)
        except (ValueError, OverflowError):
            continue
        return _seconds((moment if moment.tzinfo else moment.astimezone()).astimezone(UTC).timestamp())
    return None


LIMIT_S: Final = 10.0
_MOST_BYTES: Final = 16 * 2**20
_MOST_WORDS: Final = 160
_WHERE: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONFIGURED_BY: Final = ("PGBACKREST_", "WALG_", "BARMAN_")
"""Beginnings of the variables by which the operator configures a tool."""


class _Tool(Struct, frozen=True):
    """A backup tool.

    Attributes:
        name: Name for the operator.
        argv: Command that prints the catalogue, and does nothing else.
        parse: Reads the printed catalogue. Raises ValueError.
        files: Configuration files, one of which must exist; "~" is the home of the account.
        variable: Environment variable that configures it as well.
        account: Name of the account that runs the tool; "" for the owner of the data directory.
    """

    name: str
    argv: tuple[str, ...]
    parse: Callable[[str], tuple[BackupCatalogue, ...]]
    files: tuple[str, ...]
    variable: str
    account: str = ""


TOOLS: Final = (
    _Tool(
        name=PGBACKREST,
        argv=("pgbackrest", "info", "--output=json", "--log-level-console=off", "--log-level-file=off"),
        parse=pgbackrest,
        files=("/etc/pgbackrest/pgbackrest.conf", "/etc/pgbackrest.conf"),
        variable="PGBACKREST_CONFIG",
    ),
    _Tool(
        name=BARMAN,
        argv=("barman", "-q", "-f", "json", "list-backups", "all"),
        parse=barman,
        files=("/etc/barman.conf", "/etc/barman/barman.conf", "~/.barman.conf"),
        variable="BARMAN_CONFIG",
        account="barman",
    ),
    _Tool(
        name=WALG,
        argv=("wal-g", "backup-list", "--detail", "--json"),
        parse=walg,
        files=("~/.walg.json", "~/.walg.yaml"),
        variable="WALG_FILE_PREFIX",
    ),
)


class _Account(Struct, frozen=True):
    """User and group that a tool runs as; None keeps those of pgtop-tune."""

    uid: int | None
    gid: int | None
    home: str


async def backup_tools(data_directory: Path | None) -> BackupTools:
    """Return the answers of the tools that are installed and configured here.

    Args:
        data_directory: The server's; None where it is not known.
    """
    path = f"{os.environ.get('PATH', '')}:{_WHERE}"
    programs = [(tool, program) for tool in TOOLS if (program := shutil.which(tool.argv[0], path=path)) is not None]
    answers = await asyncio.gather(*(_asked(tool, program, data_directory) for tool, program in programs))
    return BackupTools(
        installed=tuple(tool.name for tool, _ in programs),
        catalogues=tuple(catalogue for one in answers if not isinstance(one, str) for catalogue in one),
        problems=tuple(
            (tool.name, one) for (tool, _), one in zip(programs, answers, strict=True) if isinstance(one, str)
        ),
    )


async def _asked(tool: _Tool, program: str, data_directory: Path | None) -> tuple[BackupCatalogue, ...] | str:
    """Return the catalogues of a tool, or the reason why there are none."""
    account = await asyncio.to_thread(_account, tool, data_directory)
    if account is None:
        return "the account of the tool is unknown"
    files = [Path(file.replace("~", account.home, 1)) for file in tool.files]
    configured = tool.variable in os.environ or await asyncio.to_thread(lambda: any(map(_is_there, files)))
    if not configured:
        return f"installed but not configured: neither {', '.join(map(str, files))} nor {tool.variable} is set"
    environment = {name: value for name, value in os.environ.items() if name.startswith(_CONFIGURED_BY)}
    environment |= {"PATH": _WHERE, "HOME": account.home, "LC_ALL": "C.UTF-8"}
    try:
        status, printed, message = await _run((program, *tool.argv[1:]), account, environment)
    except TimeoutError:
        return f"no answer within {LIMIT_S:.0f} s"
    except (OSError, ValueError) as problem:
        return f"cannot run: {one_line(str(problem), _MOST_WORDS)}"
    if status:
        return f"failed with exit status {status}: {one_line(without_secrets(message) or 'no message', _MOST_WORDS)}"
    try:
        return tool.parse(printed)
    except ValueError as problem:
        return f"unexpected output: {problem}"


def _is_there(file: Path) -> bool:
    try:
        stat_of(str(file))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # A directory that only its owner may read, or a file system that does not answer: the tool will say so.
        return True
    return True


def _account(tool: _Tool, data_directory: Path | None) -> _Account | None:
    if os.geteuid() != 0:
        return _Account(None, None, str(Path.home()))
    try:
        if tool.account:
            entry = pwd.getpwnam(tool.account)
        elif data_directory is not None:
            entry = pwd.getpwuid(stat_of(str(data_directory)).st_uid)
        else:
            return None
    except (KeyError, OSError):
        return None
    return _Account(entry.pw_uid, entry.pw_gid, entry.pw_dir)


async def _run(argv: tuple[str, ...], account: _Account, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Return the exit status, the output and the last line of stderr.

    Raises:
        TimeoutError: It takes longer than `LIMIT_S`.
        ValueError: It prints more than `_MOST_BYTES`.
        OSError: It cannot be started.
    """
    program = await start_guarded_async(
        argv, uid=account.uid, gid=account.gid, env=environment, cwd=Path("/"), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_S):
            printed, errors = await asyncio.gather(_all_of(program.stdout), _all_of(program.stderr))
            status = await program.wait()
    finally:
        await asyncio.shield(program.stop())
    lines = errors.decode(errors="replace").strip().splitlines()
    return status, printed.decode(errors="replace"), lines[-1] if lines else ""


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    read = bytearray()
    while block := await stream.read(2**16):
        read += block
        if len(read) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES // 2**20} MB of output")
    return bytes(read)
