"""What a place has in which pgbench can be run. Protocols only; a run does not ask which place it is.

The machine named by --load-from, and the words of OpenSSH's client that lead there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import Script
from pgtop_tune.errors import UsageProblem

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
        raise UsageProblem(f"{text!r} is no address of a machine: {problem}", _HINT) from problem
    if parts.scheme != "ssh" or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageProblem(f"{text!r} is no address of a machine", _HINT)
    if parts.password is not None:
        raise UsageProblem("the address of a machine may not contain a password", "log in with a key")
    host, user = parts.hostname or "", parts.username
    if not _HOST.fullmatch(host) or (user is not None and not _USER.fullmatch(user)) or port == 0:
        raise UsageProblem(f"{text!r} is no address of a machine", _HINT)
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

    async def find(self, asked_for: Path | None) -> Pgbench:
        """The pgbench asked for (a binary or its directory), else the newest there is.

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
