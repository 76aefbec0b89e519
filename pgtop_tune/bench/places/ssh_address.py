"""The machine named by --load-from, and the words of OpenSSH's client that lead there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

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
