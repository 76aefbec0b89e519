"""Where pgbench runs: what a run asks of a place, wherever that is, and pgbench beside us, under the guard.

The machine named by --load-from, and the words of OpenSSH's client that lead there.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem, UsageProblem
from pgtop_tune.bench.locate import Pgbench, find_pgbench
from pgtop_tune.bench.messages import lines_of
from pgtop_tune.bench.ports import LoadEndpoint, environment
from pgtop_tune.bench.profiles import Script
from pgtop_tune.bench.run_directory import RunDirectory
from pgtop_tune.process.guarded_program import GuardedAsync, start_guarded_async

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
    """A machine as the user's ssh knows it; None leaves it to his configuration."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{host}" + (f":{self.port}" if self.port else "")


def parse_address(text: str) -> SshAddress:
    """Reads ssh://[user@]host[:port].

    Raises:
        UsageProblem: It is something else, or has a password in it.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise UsageProblem(f"{text!r} is not the address of a machine: {problem}", _HINT) from problem
    if parts.scheme != "ssh" or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageProblem(f"{text!r} is not the address of a machine", _HINT)
    if parts.password is not None:
        raise UsageProblem("the address of a machine may not contain a password", "log in with a key")
    host, user = parts.hostname or "", parts.username
    if not _HOST.fullmatch(host) or (user is not None and not _USER.fullmatch(user)) or port == 0:
        raise UsageProblem(f"{text!r} is not the address of a machine", _HINT)
    return SshAddress(host, user, port)


def ssh_words(client: Sequence[str], address: SshAddress, command: Sequence[str]) -> list[str]:
    """The command line that runs a command there, without a terminal, without questions and without an agent.

    Args:
        client: The ssh to use, with words of its own.
        command: Each word reaches the other side as it is.
    """
    words = [*client, *_ALWAYS]
    words += ["-p", str(address.port)] if address.port else []
    words += ["-l", address.user] if address.user else []
    return [*words, "--", address.host, shlex.join(command)]


class ClockOffset(Struct, frozen=True):
    """A clock against ours.

    Attributes:
        ahead_ms: How far it is before ours.
        uncertain_ms: Half of the quickest round trip; the true figure is not further off.
    """

    ahead_ms: float
    uncertain_ms: float


class RunOrder(Struct, frozen=True):
    """A run of pgbench.

    Attributes:
        argv: Its command line, with paths as they are in that place.
        directory: A directory on this machine that does not exist yet; the files of its log appear in it.
        scripts: The files it reads, as they are here.
    """

    argv: tuple[str, ...]
    pgbench: Pgbench
    endpoint: LoadEndpoint
    directory: Path
    scripts: tuple[Script, ...] = ()


class Running(Protocol):
    """pgbench, started.

    Attributes:
        pid: Its process id on this machine; None where it runs on another.
        directory: Where the files of its log grow, on this machine.
        clock: Of the machine it runs on; None for this one.
    """

    @property
    def pid(self) -> int | None: ...
    @property
    def directory(self) -> Path: ...
    @property
    def clock(self) -> ClockOffset | None: ...

    async def follow(self, out: Callable[[str], None], err: Callable[[str], None]) -> int | None:
        """Passes lines of stdout and stderr until it has ended; its status, 128 + n where signal n ended it."""
        ...

    def signal(self, name: str) -> None:
        """Passes a signal such as "ALRM" on; nothing happens when it has ended."""
        ...

    async def stop(self) -> None:
        """Ends it, by force in the end; returns when it is gone."""
        ...

    def kill(self) -> None:
        """Ends it at once, for an event loop that is being torn down."""
        ...

    def remove(self) -> None:
        """Lets go of its files."""
        ...


class LoadPlace(Protocol):
    """A machine with a pgbench.

    Attributes:
        name: As it was named; "" for this machine.
    """

    @property
    def name(self) -> str: ...

    async def find(self, asked_for: Path | None, *, over_tls: bool) -> Pgbench:
        """The pgbench asked for (a binary or its directory), else the newest there is.

        Args:
            asked_for: None for any.
            over_tls: It has to be able to encrypt its sessions with TLS.

        Raises:
            LoadProblem: There is none; the place cannot be reached.
        """
        ...

    def directory(self, local: Path) -> Path:
        """What a run's directory is called in that place."""
        ...

    def scripts(self, scripts: Sequence[Script], local: Path) -> tuple[Script, ...]:
        """What script files of this machine are called in that place, once a run is started."""
        ...

    async def start(self, order: RunOrder) -> Running:
        """Starts pgbench; it ends when we do, however that is.

        Raises:
            LoadProblem: It cannot be started.
        """
        ...


# pgbench beside us, under the guard.

GUARD_GRACE_S: Final = 5.0


class LocalRunning:
    """pgbench under the guard; fields and methods as in `Running`."""

    clock: ClockOffset | None = None

    def __init__(self, guarded: GuardedAsync, directory: RunDirectory) -> None:
        self.pid: int | None = guarded.pid
        self.directory = directory.path
        self._guarded = guarded
        self._kept = directory

    async def follow(self, out: Callable[[str], None], err: Callable[[str], None]) -> int | None:
        """As in `Running`."""
        await asyncio.gather(lines_of(self._guarded.stdout, out), lines_of(self._guarded.stderr, err))
        return await self._guarded.wait()

    def signal(self, name: str) -> None:
        """As in `Running`."""
        self._guarded.send_signal(name)

    async def stop(self) -> None:
        """As in `Running`."""
        await self._guarded.stop()

    def kill(self) -> None:
        """As in `Running`."""
        self._guarded.process.kill()

    def remove(self) -> None:
        """As in `Running`."""
        self._kept.remove()


class LocalPlace:
    """This machine; methods as in `Place`."""

    name = ""

    async def find(self, asked_for: Path | None, *, over_tls: bool) -> Pgbench:
        """As in `Place`."""
        return await asyncio.to_thread(find_pgbench, asked_for, over_tls=over_tls)

    def directory(self, local: Path) -> Path:
        """The same."""
        return local

    def scripts(self, scripts: Sequence[Script], local: Path) -> tuple[Script, ...]:
        """The same."""
        return tuple(scripts)

    async def start(self, order: RunOrder) -> LocalRunning:
        """As in `Place`."""
        directory = RunDirectory(order.directory)
        password = order.endpoint.password
        try:
            passfile = directory.write_passfile(password) if password is not None else None
            guarded = await start_guarded_async(
                order.argv,
                signal="INT",
                grace_s=GUARD_GRACE_S,
                remove=(directory.path,),
                env=environment(order.endpoint, order.pgbench, passfile),
            )
        except OSError as problem:
            directory.remove()
            raise LoadProblem(f"pgbench cannot be started: {problem}") from problem
        except BaseException:
            directory.remove()
            raise
        return LocalRunning(guarded, directory)
