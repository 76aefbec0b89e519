"""The machine on which pgbench runs: this one, under the guard, or the one named by --load-from; a run's directory.

A run's private directory holds the transaction log and the password file, in memory if possible. Nothing remains: we
remove it, the guard removes it when we were killed, and the next run removes what survived both.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem, UsageProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.bench.argv import LOG_NAME
from pgtop_tune.bench.locate import Pgbench, find_pgbench
from pgtop_tune.bench.messages import lines_of
from pgtop_tune.bench.ports import LoadEndpoint, environment
from pgtop_tune.bench.profiles import Script
from pgtop_tune.model.host import NetworkLoad
from pgtop_tune.process import attempts
from pgtop_tune.process.guard import MARKER
from pgtop_tune.process.guarded_program import GuardedAsync, start_guarded_async
from pgtop_tune.process.own_program import file_argv

PREFIX: Final = "pgtop-tune-load-"
MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 256 * 2**20
"""Free space asked of /dev/shm; a run holds some 100 kB, unless our reader is kept from reading."""
_STALE_AFTER_S: Final = 60.0


def base_directory(memory: Path = MEMORY) -> Path:
    """Return /dev/shm where it can be written and has room, else TMPDIR (or /tmp)."""
    try:
        room = os.statvfs(memory)
    except OSError:
        return Path(tempfile.gettempdir())
    if os.access(memory, os.W_OK | os.X_OK) and room.f_bavail * room.f_frsize >= ROOM_BYTES:
        return memory
    return Path(tempfile.gettempdir())


def unused_name(base: Path) -> Path:
    """Return an unpredictable path for the next run's directory."""
    return base / f"{PREFIX}{secrets.token_hex(6)}"


def passfile_text(password: Secret) -> str:
    """Return a .pgpass with this password for every server."""
    escaped = password.reveal().replace("\\", "\\\\").replace(":", "\\:")
    return f"*:*:*:*:{escaped}\n"


class RunDirectory:
    """The private directory of a run: construction makes it with mode 0700, `remove()` removes it.

    Raises:
        LoadProblem: It cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700)
            self._marker = os.open(path / MARKER, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except OSError as problem:
            hint = "set TMPDIR to another directory"
            raise LoadProblem(f"no directory for pgbench's log: {problem}", hint) from problem
        # Held until we end, however that is: a directory whose marker can be locked is no program's any more.
        fcntl.flock(self._marker, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write_passfile(self, password: Secret) -> Path:
        """Return a .pgpass of mode 0600 with this password for every server, for PGPASSFILE."""
        path = self.path / "passfile"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(passfile_text(password))
        return path

    def remove(self) -> None:
        """Remove the directory; nothing happens when the guard was quicker."""
        if self._marker >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._marker)
            self._marker = -1


def sweep(base: Path) -> None:
    """Remove directories of runs whose program and guard are both gone. Never raises."""
    for path in base.glob(f"{PREFIX}*"):
        try:
            old = time.time() - path.stat().st_mtime > _STALE_AFTER_S
            if not old or path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            descriptor = os.open(path / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(descriptor)


_HOST: Final = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,254}")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_HINT: Final = "ssh://[USER@]HOST[:PORT], as in ssh://load@generator:2222"

_ALWAYS: Final = (
    "-T", "-a", "-x",
    "-o", "BatchMode=yes",
    "-o", "ForwardAgent=no",
    "-o", "ClearAllForwardings=yes",
    "-o", "PermitLocalCommand=no",
    # A connection shared with others would not end with us.
    "-o", "ControlMaster=no",
    "-o", "ControlPath=none",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip


class SshAddress(Struct, frozen=True):
    """A machine as the user's ssh knows it; None leaves a field to the user's ssh configuration."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{host}" + (f":{self.port}" if self.port else "")


def parse_address(text: str) -> SshAddress:
    """Read ssh://[user@]host[:port].

    Raises:
        UsageProblem: It is something else, or has a password in it.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise UsageProblem(f"{text!r} is not a valid machine address: {problem}", _HINT) from problem
    if parts.scheme != "ssh" or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageProblem(f"{text!r} is not a valid machine address", _HINT)
    if parts.password is not None:
        raise UsageProblem("a machine address may not contain a password", "log in with an SSH key")
    host, user = parts.hostname or "", parts.username
    if not _HOST.fullmatch(host) or (user is not None and not _USER.fullmatch(user)) or port == 0:
        raise UsageProblem(f"{text!r} is not a valid machine address", _HINT)
    return SshAddress(host, user, port)


def ssh_words(client: Sequence[str], address: SshAddress, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command on a machine, without a terminal, questions or an agent.

    Args:
        client: The ssh to use, with its first arguments.
        command: Each word reaches the other side as it is.
    """
    parts = [*client, *_ALWAYS]
    parts += ["-p", str(address.port)] if address.port else []
    parts += ["-l", address.user] if address.user else []
    return [*parts, "--", address.host, shlex.join(command)]


class ClockOffset(Struct, frozen=True):
    """The offset of another machine's clock from ours.

    Attributes:
        ahead_ms: Milliseconds by which that clock is ahead of ours.
        uncertain_ms: Half of the quickest round trip; the true figure is not further off.
    """

    ahead_ms: float
    uncertain_ms: float


class RunOrder(Struct, frozen=True):
    """An order to run pgbench.

    Attributes:
        argv: Command line of pgbench, with paths as they are in the place where it runs.
        directory: A directory on this machine that does not exist yet; the files of its log appear in it.
        scripts: The files it reads, as they are here.
        attempts: Whether it is started again until it is at work (`process/attempts.py`), on this machine only.
        waits: Whether the first of these waits for the signal "USR1".
        attempt_variable: Variable of the scripts that gets the number of the attempt; "" for none.
    """

    argv: tuple[str, ...]
    pgbench: Pgbench
    endpoint: LoadEndpoint
    directory: Path
    scripts: tuple[Script, ...] = ()
    attempts: bool = False
    waits: bool = False
    attempt_variable: str = ""


class Running(Protocol):
    """A pgbench that was started.

    Attributes:
        pid: Its process id on this machine; None where it runs on another.
        directory: Where the files of its log grow, on this machine.
        clock: Clock of the machine that pgbench runs on; None for this machine.
        cpu_s: CPU time of pgbench once it has ended; None for this machine, where its process is watched.
        network: Traffic towards the server while pgbench ran, once it has ended; None for this machine, and where it is
            unknown.
        attempts_token: Begin of the lines that `process/attempts` adds to the output; "" where it does not run.
    """

    @property
    def pid(self) -> int | None: ...
    @property
    def directory(self) -> Path: ...
    @property
    def clock(self) -> ClockOffset | None: ...
    @property
    def cpu_s(self) -> float | None: ...
    @property
    def network(self) -> NetworkLoad | None: ...
    @property
    def attempts_token(self) -> str: ...

    async def follow(self, out: Callable[[str], None], err: Callable[[str], None]) -> int | None:
        """Pass on lines of stdout and stderr until it ends; return its status, 128 + n where signal n ended it."""
        ...

    def signal(self, name: str) -> None:
        """Pass on a signal such as "ALRM"; nothing happens when it has ended."""
        ...

    async def stop(self) -> None:
        """End pgbench, by force in the end; return when it is gone."""
        ...

    def kill(self) -> None:
        """End it at once, for an event loop that is being torn down."""
        ...

    def remove(self) -> None:
        """Let go of its files."""
        ...


class LoadPlace(Protocol):
    """A machine with a pgbench.

    Attributes:
        name: The machine as it was named by --load-from; "" for this machine.
    """

    @property
    def name(self) -> str: ...

    async def find(self, asked_for: Path | None, *, over_tls: bool) -> Pgbench:
        """Return the pgbench asked for (a binary or its directory), else the newest there is.

        Args:
            asked_for: None for any.
            over_tls: It has to be able to encrypt its sessions with TLS.

        Raises:
            LoadProblem: There is none; the place cannot be reached.
        """
        ...

    def directory(self, local: Path) -> Path:
        """Return the path of a run's directory in that place."""
        ...

    def scripts(self, scripts: Sequence[Script], local: Path) -> tuple[Script, ...]:
        """Return the paths of this machine's script files in that place, once a run is started."""
        ...

    async def start(self, order: RunOrder) -> Running:
        """Start pgbench; it ends when we do, however that is.

        Raises:
            LoadProblem: It cannot be started.
        """
        ...


# pgbench on this machine, under the guard.

GUARD_GRACE_S: Final = 5.0


class LocalRunning:
    """pgbench under the guard; fields and methods as in `Running`."""

    clock: ClockOffset | None = None
    cpu_s: float | None = None
    network: NetworkLoad | None = None

    def __init__(self, guarded: GuardedAsync, directory: RunDirectory, attempts_token: str) -> None:
        self.pid: int | None = guarded.pid
        self.attempts_token = attempts_token
        self.directory = directory.path
        self._guarded = guarded
        self._kept = directory

    async def follow(self, out: Callable[[str], None], err: Callable[[str], None]) -> int | None:
        await asyncio.gather(lines_of(self._guarded.stdout, out), lines_of(self._guarded.stderr, err))
        return await self._guarded.wait()

    def signal(self, name: str) -> None:
        self._guarded.send_signal(name)

    async def stop(self) -> None:
        await self._guarded.stop()

    def kill(self) -> None:
        self._guarded.process.kill()

    def remove(self) -> None:
        self._kept.remove()


EVERY_S: Final = 0.02
"""Time between the begins of two attempts, unless one takes longer. With the counting clients these are a hundred a
second at most; one costs 4 to 7 ms of CPU here, and 2 ms of a server that lets it connect."""


def _attempts_argv(order: RunOrder) -> list[str]:
    log = str(order.directory / LOG_NAME)
    variable = ["--variable", order.attempt_variable] if order.attempt_variable else []
    options = [*variable, *(["--wait", "USR1"] if order.waits else [])]
    return [*file_argv(attempts.__file__), "--every", str(EVERY_S), "--log", log, *options, "--"]


class LocalPlace:
    """This machine; methods as in `LoadPlace`."""

    name = ""

    async def find(self, asked_for: Path | None, *, over_tls: bool) -> Pgbench:
        return await asyncio.to_thread(find_pgbench, asked_for, over_tls=over_tls)

    def directory(self, local: Path) -> Path:
        return local

    def scripts(self, scripts: Sequence[Script], local: Path) -> tuple[Script, ...]:
        return tuple(scripts)

    async def start(self, order: RunOrder) -> LocalRunning:
        directory = RunDirectory(order.directory)
        password = order.endpoint.password
        token = f"{secrets.token_hex(16)} " if order.attempts else ""
        try:
            passfile = directory.write_passfile(password) if password is not None else None
            variables = environment(order.endpoint, order.pgbench, passfile)
            guarded = await start_guarded_async(
                [*_attempts_argv(order), *order.argv] if order.attempts else order.argv,
                signal="INT",
                grace_s=GUARD_GRACE_S,
                remove=(directory.path,),
                env=variables | {attempts.TOKEN: token} if token else variables,
            )
        except OSError as problem:
            directory.remove()
            raise LoadProblem(f"pgbench cannot be started: {problem}") from problem
        except BaseException:
            directory.remove()
            raise
        return LocalRunning(guarded, directory, token)
