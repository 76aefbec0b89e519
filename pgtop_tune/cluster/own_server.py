"""A server of our own: reached only through a socket in a private directory, ended by the guard when we are gone."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from pgtop_tune.cluster.account import Account
from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.paths import opened
from pgtop_tune.process import guard
from pgtop_tune.process.guarded_program import Guarded, start_guarded
from pgtop_tune.safe_text import printable_lines
from pgtop_tune.server_packages import own_libraries_hint

PORT: Final = 5432

StopMode = Literal["smart", "fast", "immediate"]
_SIGNALS: Final[dict[StopMode, str]] = {"smart": "TERM", "fast": "INT", "immediate": "QUIT"}

_LONGEST_SOCKET: Final = 107
_STEP_TIMEOUT_S: Final = 120.0
_IMMEDIATE_TIMEOUT_S: Final = 10.0
_LOG_LINES: Final = 12
_STATUS_LINE: Final = 7
"""Line of postmaster.pid, from 0, that says "ready" (PostgreSQL: src/include/utils/pidfile.h)."""


class OwnServer:
    """A server whose process is ours. A context manager that stops it.

    It listens on a Unix socket only, runs as an unprivileged account when we are root, and ends when this process does,
    in whatever way.

    Attributes:
        title: What it is called in messages: "throwaway server".
        socket_dir: What to give as host.
        port: Part of the socket's name.
        data_dir: PGDATA.
        log_file: What the server wrote to stderr.
        start_timeout_s: How long a start may take, its recovery included.
        at_our_end: The signal that ends it when this process is gone.
    """

    port: Final = PORT
    title = "server"
    start_timeout_s = 60.0
    at_our_end = "INT"

    def __init__(
        self, programs: Binaries, account: Account, work_dir: Path, home: Path, remove: Sequence[Path], grace_s: float
    ) -> None:
        """Args:
        programs: What it runs.
        work_dir: Its private directory, for the socket.
        home: Where data and log are.
        remove: Directories that go when it ends, each with a file guard.MARKER.
        grace_s: How long a shutdown may take before it becomes an immediate one.
        """
        self.socket_dir = work_dir
        self.data_dir = home / "data"
        self.log_file = home / "server.log"
        self._programs = programs
        self._account = account
        self._work_dir = work_dir
        self._remove = tuple(remove)
        self._grace_s = grace_s
        self._server: Guarded | None = None
        self._under_way: Guarded | None = None

    @property
    def postmaster_pid(self) -> int:
        """Process id of the server.

        Raises:
            ClusterProblem: It does not run.
        """
        if self._server is None or self._server.returncode is not None:
            raise ClusterProblem(f"the {self.title} does not run")
        return self._server.pid

    def restart(self) -> None:
        """Ends the server (fast) and starts it again; returns when it takes connections.

        Raises:
            ClusterProblem: It does not come back; the message holds its last words.
        """
        if not self._end("fast"):
            raise ClusterProblem(f"the {self.title} did not stop, so it was killed and removed")
        self._start()

    def stop(self, mode: StopMode = "fast") -> None:
        """Ends the server, and removes its directories. Does nothing the second time.

        Args:
            mode: As pg_ctl's; where it takes too long it becomes an immediate one.
        """
        if self._under_way is not None:
            self._under_way.stop()
        self._end(mode)
        for directory in self._remove:
            guard.remove_ours(str(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, program: str, *arguments: str, words: Path | None = None) -> None:
        """Runs a program of the installation to its end, as the server's account."""
        argv = [str(self._programs.program(program)), *arguments]
        if words is not None:
            argv = ["/bin/sh", "-c", 'exec "$@" < "$0"', str(words), *argv]
        self._run_words(program, argv, self._programs.environment(), _STEP_TIMEOUT_S)

    def _run_words(self, program: str, argv: list[str], environment: Mapping[str, str], timeout_s: float) -> None:
        """Runs any program to its end, as the server's account; it is called `program` in messages."""
        output = self._work_dir / "output"
        with output.open("wb") as file:
            running = self._under_way = self._guarded(argv, file.fileno(), environment)
            try:
                status = running.wait(timeout_s)
            except TimeoutError:
                raise ClusterProblem(f"{program} takes longer than {timeout_s:.0f} s", _tail(output)) from None
            finally:
                self._under_way = None
                running.stop()
        if status != 0:
            said = _tail(output)
            hint = own_libraries_hint(said, "pass the directory of an installed server's programs with --pg-bin")
            raise ClusterProblem(f"{program} failed:\n{said}", hint)

    def _start(self) -> None:
        argv = [
            str(self._programs.program("postgres")),
            *("-D", str(self.data_dir)),
            # On the command line because a kept cluster gets a new socket directory each time.
            *("-c", "listen_addresses="),
            *("-c", f"port={PORT}"),
            *("-c", f"unix_socket_directories={_listed(self.socket_dir)}"),
        ]
        descriptor = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            said_before = os.fstat(descriptor).st_size
            self._server = self._guarded(argv, descriptor, self._programs.environment(), self.at_our_end)
        finally:
            os.close(descriptor)
        self._wait_until_ready(self._server, said_before)

    def _wait_until_ready(self, server: Guarded, said_before: int) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while not self._is_ready(server.pid):
            if server.returncode is not None:
                raise ClusterProblem(f"the {self.title} did not start:\n{_tail(self.log_file, said_before)}")
            if time.monotonic() > deadline:
                words = _tail(self.log_file, said_before)
                raise ClusterProblem(f"the {self.title} is not ready after {self.start_timeout_s:.0f} s:\n{words}")
            time.sleep(0.01)

    def _is_ready(self, pid: int) -> bool:
        try:
            with opened(self.data_dir / "postmaster.pid", links=False) as file:
                content = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return False
        return len(content) > _STATUS_LINE and content[0] == str(pid) and content[_STATUS_LINE].strip() == "ready"

    def _end(self, mode: StopMode) -> bool:
        """Whether it ended when asked to; if not, the guard has killed it and removed the directory."""
        server, self._server = self._server, None
        if server is None:
            return True
        try:
            for each, patience_s in ((mode, self._grace_s), ("immediate", _IMMEDIATE_TIMEOUT_S)):
                server.send_signal(_SIGNALS[each])
                try:
                    server.wait(patience_s)
                except TimeoutError:
                    continue
                return True
            return False
        finally:
            server.stop()

    def _guarded(
        self, argv: list[str], output: int, environment: Mapping[str, str], at_our_end: str = "INT"
    ) -> Guarded:
        ours = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        try:
            return start_guarded(
                argv,
                signal=at_our_end,
                then="QUIT",
                grace_s=self._grace_s,
                remove=self._remove,
                uid=self._account.uid,
                gid=self._account.gid,
                stdout=output,
                stderr=output,
                env={**ours, "LC_ALL": "C", **environment},
                cwd=self._work_dir,
            )
        except OSError as problem:
            raise ClusterProblem(f"{argv[0]} cannot be started: {problem.strerror}") from problem


def private_directory(account: Account) -> Path:
    """A new private directory of the account, with a path short enough for a socket in it."""
    try:
        places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    except FileNotFoundError as problem:
        raise ClusterProblem("no directory for temporary files can be written", "set TMPDIR to one") from problem
    for place in dict.fromkeys(places):
        room = _LONGEST_SOCKET - len(os.fsencode(place / "pgtop-12345678" / f".s.PGSQL.{PORT}"))
        if room < 0 or not account.can_enter(place):
            continue
        try:
            directory = Path(tempfile.mkdtemp(prefix="pgtop-", dir=place))
        except OSError:
            continue
        (directory / guard.MARKER).touch()
        account.own(directory)
        return directory
    raise ClusterProblem(
        f"{account.name} can use no directory for temporary files",
        "set TMPDIR to one with a short path that all users may enter",
    )


def _listed(path: Path) -> str:
    """A path as an element of a list of PostgreSQL's, in which blanks and commas mean something."""
    escaped = str(path).replace('"', '""')
    return f'"{escaped}"'


def _tail(path: Path, offset: int = 0) -> str:
    """The last lines of a file that lie behind an offset in bytes, made safe to show."""
    try:
        with opened(path, links=False) as file:
            file.seek(max(offset, os.fstat(file.fileno()).st_size - 16_384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return "(it printed nothing)"
    return "\n".join(printable_lines(text)[-_LOG_LINES:]) or "(it printed nothing)"
