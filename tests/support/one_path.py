"""Servers whose data directories have one path: each in a mount namespace of its own, as containers of one image."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.accounts import require_root
from tests.support.processes import eventually
from tests.support.servers import conninfo

_INSIDE = (
    'mount --bind "$1" "$2" && shift 2 && uid="$1" gid="$2" && shift 2 &&'
    ' exec setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"'
)


class OnePath:
    """Starts and ends servers at a path.

    Args:
        path: An empty directory that everybody may enter.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, server: Throwaway) -> None:
        """Starts it there; it is reached by its own socket."""
        owner = Path(str(server.data_dir)).stat()
        argv = [
            str(server._programs.program("postgres")), "-D", str(self._path), "-c", "listen_addresses=",
            "-c", f"unix_socket_directories={server.socket_dir}", "-c", f"port={server.port}",
        ]  # fmt: skip
        self._running[Path(str(server.data_dir))] = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _INSIDE, "sh", str(server.data_dir), str(self._path),
             str(owner.st_uid), str(owner.st_gid), *argv],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", **server._programs.environment()}, cwd="/",
        )  # fmt: skip
        assert eventually(lambda: answers(server)), "it does not start at the common path"

    def stop(self, server: Throwaway, number: signal.Signals = signal.SIGINT) -> None:
        """Ends it."""
        running = self._running.pop(Path(str(server.data_dir)))
        running.send_signal(number)
        running.wait(60)

    def restart(self, server: Throwaway) -> None:
        """Ends it and starts it again."""
        self.stop(server)
        self.start(server)

    def close(self) -> None:
        """Ends all."""
        for running in self._running.values():
            running.send_signal(signal.SIGQUIT)
            running.wait(60)


def answers(server: Throwaway) -> bool:
    """Whether it takes connections."""
    try:
        psycopg.connect(conninfo(server)).close()
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def one_path(*servers: Throwaway) -> Iterator[OnePath]:
    """Running throwaways, moved to one path; skips where there are no mount namespaces for us."""
    require_root()
    if not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("a mount namespace takes unshare and setpriv")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    path = Path(str(servers[0].socket_dir)) / "one-path"
    path.mkdir(mode=0o755)
    place = OnePath(path)
    try:
        for server in servers:
            server._end("fast")
            place.start(server)
        yield place
    finally:
        place.close()
