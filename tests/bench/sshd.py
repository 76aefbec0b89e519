"""A real sshd on the loopback, with keys, port and configuration of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pgtop_tune.bench.places import SshAddress
from tests.support.poolers import LOOPBACK, number_of, reserved_port
from tests.support.processes import eventually

NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sshd:
    """Where it is, and the client that gets in."""

    address: SshAddress
    client: tuple[str, ...]


def why_not() -> str:
    """Why there can be no sshd here; "" when there can."""
    missing = [name for name in ("ssh", "ssh-keygen") if not shutil.which(name)]
    if not _program():
        missing.append("sshd")
    return f"no {', '.join(missing)} (Debian: openssh-server)" if missing else ""


def _program() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def sshd(
    directory: Path, address: str = LOOPBACK, *, within: Sequence[str] = (), variables: Mapping[str, str] = NO_VARIABLES
) -> Iterator[Sshd]:
    """Starts one that lets in whoever runs the test, with a key made for it.

    Args:
        address: Where it listens.
        within: Words before its command.
        variables: Of the programs that it starts.
    """
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    reserved = reserved_port()
    port = number_of(reserved)
    (directory / "sshd_config").write_text(
        f"ListenAddress {address}:{port}\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/user.pub\n"
        f"PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        "PermitUserEnvironment no\n"
        + ("SetEnv " + " ".join(f"{name}={value}" for name, value in variables.items()) + "\n" if variables else "")
    )
    (directory / "ssh_config").write_text(
        f"Host *\n  IdentityFile {directory}/user\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"
        f"  UserKnownHostsFile {directory}/known\n  LogLevel ERROR\n"
    )
    if os.geteuid() == 0:
        # What the package's service would make.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    log = (directory / "log").open("wb")
    program = _program()
    assert program is not None
    server = subprocess.Popen([*within, program, "-D", "-e", "-f", str(directory / "sshd_config")], stderr=log)
    found = Sshd(SshAddress(address, getuser(), port), ("ssh", "-F", str(directory / "ssh_config")))

    def answers() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex((address, port)) == 0

    try:
        assert eventually(answers), (directory / "log").read_text()
        yield found
    finally:
        server.terminate()
        server.wait()
        reserved.close()
        log.close()
