"""Asks the backup tools of this machine for their catalogues: commands that only read, as the account they belong to.

A tool is asked where its program and a configuration are found. As root it runs as the owner of the data directory,
Barman as its own account; else as we are.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.backup_catalogues import BARMAN, PGBACKREST, WALG, barman, pgbackrest, walg
from pgtop_tune.model.backups import BackupCatalogue, BackupTools
from pgtop_tune.process.guarded_program import start_guarded_async
from pgtop_tune.process.mount_namespace import stat_of
from pgtop_tune.safe_text import one_line
from pgtop_tune.secret import without_secrets

LIMIT_S: Final = 10.0
_MOST_BYTES: Final = 16 * 2**20
_MOST_WORDS: Final = 160
_WHERE: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONFIGURED_BY: Final = ("PGBACKREST_", "WALG_", "BARMAN_")
"""Beginnings of the variables by which the operator configures a tool."""


class _Tool(Struct, frozen=True):
    """A tool.

    Attributes:
        name: As it is called.
        argv: Reads its catalogue, and nothing else.
        parse: Of what it prints. Raises ValueError.
        files: Of which one configures it; "~" is the home of the account.
        variable: That configures it as well.
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
    """What the tools that are installed and configured here say.

    Args:
        data_directory: Of the server; None where it is not known.
    """
    path = f"{os.environ.get('PATH', '')}:{_WHERE}"
    found = [(tool, program) for tool in TOOLS if (program := shutil.which(tool.argv[0], path=path)) is not None]
    said = await asyncio.gather(*(_asked(tool, program, data_directory) for tool, program in found))
    return BackupTools(
        installed=tuple(tool.name for tool, _ in found),
        catalogues=tuple(each for one in said if not isinstance(one, str) for each in one),
        problems=tuple((tool.name, one) for (tool, _), one in zip(found, said, strict=True) if isinstance(one, str)),
    )


async def _asked(tool: _Tool, program: str, data_directory: Path | None) -> tuple[BackupCatalogue, ...] | str:
    """Its catalogues, or why there are none."""
    account = await asyncio.to_thread(_account, tool, data_directory)
    if account is None:
        return "the account that it runs as is not known"
    files = [Path(each.replace("~", account.home, 1)) for each in tool.files]
    configured = tool.variable in os.environ or await asyncio.to_thread(lambda: any(map(_is_there, files)))
    if not configured:
        return f"it is installed and not configured: neither {', '.join(map(str, files))} nor {tool.variable} is there"
    environment = {name: value for name, value in os.environ.items() if name.startswith(_CONFIGURED_BY)}
    environment |= {"PATH": _WHERE, "HOME": account.home, "LC_ALL": "C.UTF-8"}
    try:
        status, printed, words = await _run((program, *tool.argv[1:]), account, environment)
    except TimeoutError:
        return f"it did not answer within {LIMIT_S:.0f} s"
    except (OSError, ValueError) as problem:
        return f"it did not run: {one_line(str(problem), _MOST_WORDS)}"
    if status:
        return f"it failed with status {status}: {one_line(without_secrets(words) or 'without a word', _MOST_WORDS)}"
    try:
        return tool.parse(printed)
    except ValueError as problem:
        return f"its answer is not understood: {problem}"


def _is_there(file: Path) -> bool:
    try:
        stat_of(str(file))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # A directory that only its owner may look into, or a file system that does not answer: the tool tells.
        return True
    return True


def _account(tool: _Tool, data_directory: Path | None) -> _Account | None:
    if os.geteuid() != 0:
        return _Account(None, None, str(Path.home()))
    try:
        if tool.account:
            found = pwd.getpwnam(tool.account)
        elif data_directory is not None:
            found = pwd.getpwuid(stat_of(str(data_directory)).st_uid)
        else:
            return None
    except (KeyError, OSError):
        return None
    return _Account(found.pw_uid, found.pw_gid, found.pw_dir)


async def _run(argv: tuple[str, ...], account: _Account, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Status, output, last words.

    Raises:
        TimeoutError: It takes too long.
        ValueError: It says too much.
        OSError: It cannot be started.
    """
    program = await start_guarded_async(
        argv, uid=account.uid, gid=account.gid, env=environment, cwd=Path("/"), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_S):
            printed, words = await asyncio.gather(_all_of(program.stdout), _all_of(program.stderr))
            status = await program.wait()
    finally:
        await asyncio.shield(program.stop())
    lines = words.decode(errors="replace").strip().splitlines()
    return status, printed.decode(errors="replace"), lines[-1] if lines else ""


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    read = bytearray()
    while block := await stream.read(2**16):
        read += block
        if len(read) > _MOST_BYTES:
            raise ValueError(f"it printed more than {_MOST_BYTES // 2**20} MB")
    return bytes(read)
