"""A server of our own: made in a moment, reached only through a socket in a private directory, gone when we are."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from pgtop_tune.cluster import configuration
from pgtop_tune.cluster.account import Account, copy_for_everybody, server_account
from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.paths import opened
from pgtop_tune.process import guard
from pgtop_tune.process.guarded_program import Guarded, start_guarded
from pgtop_tune.safe_text import printable_lines
from pgtop_tune.server_packages import own_libraries_hint

SUPERUSER: Final = "postgres"
PORT: Final = 5432
KEPT: Final = ".pgtop-tune-kept"
"""Only a directory that is empty or holds a file of this name is taken for `keep`."""

StopMode = Literal["smart", "fast", "immediate"]
_SIGNALS: Final[dict[StopMode, str]] = {"smart": "TERM", "fast": "INT", "immediate": "QUIT"}

_LONGEST_SOCKET: Final = 107
_START_TIMEOUT_S: Final = 60.0
_STEP_TIMEOUT_S: Final = 120.0
_IMMEDIATE_TIMEOUT_S: Final = 10.0
_GRACE_S: Final = {False: 10.0, True: 60.0}
"""How long a shutdown may take before it becomes an immediate one, by whether the cluster is kept."""
_LOG_LINES: Final = 12
_STATUS_LINE: Final = 7
"""Line of postmaster.pid, from 0, that says "ready" (PostgreSQL: src/include/utils/pidfile.h)."""


class Throwaway:
    """A running server of our own; `create` makes one. A context manager that stops it.

    It listens on a Unix socket only, trusts whoever can enter the socket's directory (its own account and root),
    runs as an unprivileged account when we are root, and ends when this process does, in whatever way.

    Attributes:
        binaries: The programs it was asked to be made of.
        bin_dir: Their directory.
        socket_dir: What to give as host.
        port: Part of the socket's name.
        user: The superuser's name; no password.
        data_dir: PGDATA.
        log_file: What the server wrote to stderr.
        has_statements: Whether pg_stat_statements is in the databases postgres and template1.
    """

    port: Final = PORT
    user: Final = SUPERUSER

    def __init__(self, binaries: Binaries, account: Account, work_dir: Path, keep: Path | None) -> None:
        self.binaries = binaries
        self.bin_dir = binaries.bin_dir
        self.socket_dir = work_dir
        home = work_dir if keep is None else keep
        self.data_dir = home / "data"
        self.log_file = home / "server.log"
        self.has_statements = configuration.has_statements(binaries)
        self._account = account
        self._work_dir = work_dir
        self._keep = keep
        self._programs = binaries
        self._server: Guarded | None = None

    @classmethod
    def create(
        cls,
        binaries: Binaries,
        *,
        keep: Path | None = None,
        settings: Mapping[str, str] | None = None,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> Self:
        """Makes a cluster, starts it, and returns when it takes connections.

        Args:
            binaries: What to make it of.
            keep: Where the cluster is to live and stay: a new or empty directory, or one that an earlier call made,
                whose cluster is then used again. None: it is removed in the end.
            settings: Values for postgresql.conf beyond and before the defaults; ALTER SYSTEM still overrides them.
            on_step: Told in plain words what is done next.

        Raises:
            ClusterProblem: It cannot be made or started; the message holds the server's last words.
        """
        account = server_account()
        work_dir = _work_dir(account)
        cluster: Self | None = None
        try:
            cluster = cls(binaries, account, work_dir, None if keep is None else _kept(keep, account))
            cluster._make({**configuration.defaults(binaries), **(settings or {})}, on_step)
        except BaseException as problem:
            if cluster is not None:
                cluster.stop("immediate")
            guard.remove_ours(str(work_dir))
            if isinstance(problem, OSError):
                raise ClusterProblem(f"the throwaway server cannot be made: {problem}") from problem
            raise
        return cluster

    @property
    def postmaster_pid(self) -> int:
        """Process id of the server.

        Raises:
            ClusterProblem: It does not run.
        """
        if self._server is None or self._server.returncode is not None:
            raise ClusterProblem("the throwaway server does not run")
        return self._server.pid

    def restart(self) -> None:
        """Ends the server (fast) and starts it again; returns when it takes connections.

        Raises:
            ClusterProblem: It does not come back; the message holds its last words.
        """
        if not self._end("fast"):
            raise ClusterProblem("the throwaway server did not stop, so it was killed and removed")
        self._start()

    def stop(self, mode: StopMode = "fast") -> None:
        """Ends the server, and removes its directory unless it is kept. Does nothing the second time.

        Args:
            mode: As pg_ctl's; where it takes longer than 10 s (60 s when kept) it becomes an immediate one.
        """
        self._end(mode)
        guard.remove_ours(str(self._work_dir))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make(self, settings: Mapping[str, str], on_step: Callable[[str], None]) -> None:
        if not self._account.can_run(self.binaries):
            on_step(f"copying the programs to where {self._account.name} can read them")
            target = self._work_dir / "programs"
            target.mkdir()
            self._programs = copy_for_everybody(self.binaries, target)
        made_before = (self.data_dir / "PG_VERSION").exists()
        if made_before:
            self._check_major()
        else:
            on_step("making the cluster")
            self._initdb()
            configuration.include(self.data_dir)
        configuration.write(settings, self.data_dir, self._account)
        if self.has_statements and not made_before:
            self._create_extension()
        on_step("starting the server")
        self._start()

    def _check_major(self) -> None:
        with opened(self.data_dir / "PG_VERSION", links=False) as file:
            major = file.read().decode("ascii", "replace").strip()
        if major != str(self.binaries.major):
            raise ClusterProblem(
                f"{self._keep} holds a cluster of PostgreSQL {major}, and the programs are {self.binaries.version}",
                f"pass the directory of the programs of version {major} with --pg-bin, or another directory to keep",
            )

    def _initdb(self) -> None:
        # What an interrupted initdb left behind would only stop the next one.
        shutil.rmtree(self.data_dir, ignore_errors=True)
        options = ("-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
        self._run("initdb", "-D", str(self.data_dir), *options)

    def _create_extension(self) -> None:
        statement = self._work_dir / "extension.sql"
        statement.write_text(f"CREATE EXTENSION {configuration.STATEMENTS}\n", encoding="ascii")
        self._account.own(statement)
        # template1 as well: databases that are made later have it then.
        for database in ("template1", "postgres"):
            self._run("postgres", "--single", "-D", str(self.data_dir), "-F", database, words=statement)

    def _run(self, program: str, *arguments: str, words: Path | None = None) -> None:
        """Runs a program of the installation to its end, as the server's account."""
        argv = [str(self._programs.program(program)), *arguments]
        if words is not None:
            argv = ["/bin/sh", "-c", 'exec "$@" < "$0"', str(words), *argv]
        output = self._work_dir / "output"
        with output.open("wb") as file:
            running = self._guarded(argv, file.fileno())
            try:
                status = running.wait(_STEP_TIMEOUT_S)
            except TimeoutError:
                raise ClusterProblem(f"{program} takes longer than {_STEP_TIMEOUT_S:.0f} s", _tail(output)) from None
            finally:
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
            self._server = self._guarded(argv, descriptor)
        finally:
            os.close(descriptor)
        self._wait_until_ready(self._server, said_before)

    def _wait_until_ready(self, server: Guarded, said_before: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready(server.pid):
            if server.returncode is not None:
                raise ClusterProblem(f"the throwaway server did not start:\n{_tail(self.log_file, said_before)}")
            if time.monotonic() > deadline:
                words = _tail(self.log_file, said_before)
                raise ClusterProblem(f"the throwaway server is not ready after {_START_TIMEOUT_S:.0f} s:\n{words}")
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
            for each, patience_s in ((mode, _GRACE_S[self._keep is not None]), ("immediate", _IMMEDIATE_TIMEOUT_S)):
                server.send_signal(_SIGNALS[each])
                try:
                    server.wait(patience_s)
                except TimeoutError:
                    continue
                return True
            return False
        finally:
            server.stop()

    def _guarded(self, argv: list[str], output: int) -> Guarded:
        environment = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        try:
            return start_guarded(
                argv,
                signal="INT",
                then="QUIT",
                grace_s=_GRACE_S[self._keep is not None],
                remove=(self._work_dir,),
                uid=self._account.uid,
                gid=self._account.gid,
                stdout=output,
                stderr=output,
                env={**environment, "LC_ALL": "C", **self._programs.environment()},
                cwd=self._work_dir,
            )
        except OSError as problem:
            raise ClusterProblem(f"{argv[0]} cannot be started: {problem.strerror}") from problem


def _work_dir(account: Account) -> Path:
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


def _kept(keep: Path, account: Account) -> Path:
    """The directory to keep a cluster in, made or found fit.

    Raises:
        ClusterProblem: It holds something else, or the account cannot get there.
    """
    directory = keep.expanduser().absolute()
    ours = directory / KEPT
    if directory.exists() and not directory.is_dir():
        raise ClusterProblem(f"{keep} is not a directory")
    if directory.is_dir() and any(directory.iterdir()) and not ours.exists():
        raise ClusterProblem(f"{keep} is not empty and was not made by pgtop-tune", "pass a new or an empty directory")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not ours.exists():
        ours.touch()
        directory.chmod(0o700)
        account.own(directory)
    if not account.can_enter(directory):
        raise ClusterProblem(
            f"the server runs as {account.name}, which cannot access {keep}",
            "pass a directory whose parents all users may enter",
        )
    return directory


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
