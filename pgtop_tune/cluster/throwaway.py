"""A server of our own: made in a moment, reached only through a socket in a private directory, gone when we are.

It has a directory of ours, which others can enter and not write: in it stand its log, copied programs and what they
print, and one directory of the server's account with sockets and data.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.foreign_directory import ForeignDirectory, ForeignPath, is_private_place
from pgtop_tune.base.safe_text import printable_lines
from pgtop_tune.base.server_packages import own_libraries_hint
from pgtop_tune.cluster import configuration
from pgtop_tune.cluster.account import Account, copy_for_everybody, server_account
from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.process import guard
from pgtop_tune.process.guarded_program import Guarded, start_guarded

SUPERUSER: Final = "postgres"
PORT: Final = 5432
KEPT: Final = ".pgtop-tune-kept"
"""Only a directory that is empty or holds a file of this name is taken for `keep`."""

StopMode = Literal["smart", "fast", "immediate"]
_SIGNALS: Final[dict[StopMode, str]] = {"smart": "TERM", "fast": "INT", "immediate": "QUIT"}

_DATA: Final = "data"
_LOG: Final = "server.log"
_OF_ACCOUNT: Final = "pg"
"""Of the account's directory in ours: sockets, and the data of a cluster that is not kept."""
_GRACE_S: Final = {False: 10.0, True: 60.0}
"""How long a shutdown may take before it becomes an immediate one, by whether the cluster is kept."""
_LONGEST_SOCKET: Final = 107
_STEP_TIMEOUT_S: Final = 120.0
_START_TIMEOUT_S: Final = 60.0
_IMMEDIATE_TIMEOUT_S: Final = 10.0
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
        user: The superuser's name; no password.
        port: Part of the socket's name.
        work_dir: Our directory, removed in the end.
        socket_dir: What to give as host.
        data_dir: PGDATA.
        log_file: The server's standard error.
        has_statements: Whether pg_stat_statements is in the databases postgres and template1.
    """

    user: Final = SUPERUSER
    port: Final = PORT

    def __init__(self, binaries: Binaries, account: Account, work_dir: Path, keep: ForeignDirectory | None) -> None:
        """Args:
        binaries: The programs.
        account: The account of the server.
        work_dir: From `private_directory`.
        keep: Where the cluster is to live and stay; None: in the work directory.
        """
        self.binaries = binaries
        self.bin_dir = binaries.bin_dir
        self.has_statements = configuration.has_statements(binaries)
        self.work_dir = work_dir
        self._programs = binaries
        self._account = account
        self._of_account = account.own(work_dir, _OF_ACCOUNT)
        self._home = self._of_account if keep is None else keep
        self._log = ForeignDirectory.find(work_dir) if keep is None else keep
        self.socket_dir = self._of_account.path
        self.data_dir = ForeignPath(f"{self._home.path}/{_DATA}")
        self.log_file = ForeignPath(f"{self._log.path}/{_LOG}")
        self._keep = keep
        self._grace_s = _GRACE_S[keep is not None]
        self._server: Guarded | None = None
        self._under_way: Guarded | None = None

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
            settings: Values for postgresql.conf beyond and before the defaults, in place of those of an earlier call;
                None leaves these. ALTER SYSTEM still overrides them.
            on_step: Told in plain words what is done next.

        Raises:
            ClusterProblem: It cannot be made or started; the message holds the server's last words.
        """
        account = server_account()
        work_dir = private_directory(account)
        cluster: Self | None = None
        try:
            cluster = cls(binaries, account, work_dir, None if keep is None else _kept(keep, account))
            cluster._make(settings, on_step)
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

    def configure(self, settings: Mapping[str, str]) -> None:
        """Gives it other settings, as those of `create`, and restarts it.

        Raises:
            ClusterProblem: It does not start with them; a cluster that is kept has its former ones again.
        """
        with self._with(settings):
            self.restart()

    def restart(self) -> None:
        """Ends the server (fast) and starts it again; returns when it takes connections.

        Raises:
            ClusterProblem: It does not come back; the message holds its last words.
        """
        if not self._end("fast"):
            raise ClusterProblem("the throwaway server did not stop, so it was killed and removed")
        self._start()

    def stop(self, mode: StopMode = "fast") -> None:
        """Ends the server, and removes its directories. Does nothing the second time.

        Args:
            mode: As pg_ctl's; where it takes too long it becomes an immediate one.
        """
        if self._under_way is not None:
            self._under_way.stop()
        self._end(mode)
        guard.remove_ours(str(self.work_dir))
        for directory in {self._of_account, self._home, self._log}:
            directory.close()

    def remembered(self, name: str) -> str:
        """Return the text of a small note of a kept cluster; "" where there is none."""
        try:
            return "" if self._keep is None else self._keep.read(name).decode("utf-8", "replace")
        except OSError:
            return ""

    def remember(self, name: str, text: str) -> None:
        """Write a small note beside a kept cluster.

        Raises:
            OSError: It cannot be written.
        """
        if self._keep is not None:
            self._keep.replace(name, text.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make(self, settings: Mapping[str, str] | None, on_step: Callable[[str], None]) -> None:
        if not self._account.can_run(self.binaries):
            on_step(f"copying the programs to where {self._account.name} can read them")
            target = self.work_dir / "programs"
            target.mkdir()
            self._programs = copy_for_everybody(self.binaries, target)
        if self._has_cluster():
            self._check_major()
        else:
            on_step("making the cluster")
            self._initdb()
            with self._data() as data:
                configuration.include(data)
                configuration.write(configuration.defaults(self.binaries), data)
            if self.has_statements:
                self._create_extension()
        on_step("starting the server")
        with self._with(settings):
            self._start()

    def _data(self) -> ForeignDirectory:
        return self._home.child(_DATA)

    def _has_cluster(self) -> bool:
        try:
            with self._data() as data:
                return data.has("PG_VERSION")
        except OSError:
            return False

    @contextmanager
    def _with(self, settings: Mapping[str, str] | None) -> Iterator[None]:
        """What starts it within this has the settings; where it fails, the next start has those of before."""
        with self._data() as data:
            before = configuration.read(data)
            if settings is not None:
                configuration.write({**configuration.defaults(self.binaries), **settings}, data)
            try:
                yield
            except ClusterProblem:
                if self._home.has(_DATA):
                    configuration.put(before, data)
                raise

    def _check_major(self) -> None:
        with self._data() as data:
            major = data.read("PG_VERSION", 32).decode("ascii", "replace").strip()
        if major != str(self.binaries.major):
            raise ClusterProblem(
                f"{self._home.path} holds a cluster of PostgreSQL {major}, and the programs are "
                f"{self.binaries.version}",
                f"pass the directory of the programs of version {major} with --pg-bin, or another directory to keep",
            )

    def _initdb(self) -> None:
        if self._home.has(_DATA):
            # What an interrupted initdb left behind would only stop the next one; the account removes it itself.
            self._run_command(["/bin/rm", "-rf", "--", str(self.data_dir)])
        options = ("-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
        self._run("initdb", "-D", str(self.data_dir), *options)

    def _create_extension(self) -> None:
        # template1 as well: databases that are made later have it then.
        for database in ("template1", "postgres"):
            arguments = ("--single", "-D", str(self.data_dir), "-F", database)
            self._run("postgres", *arguments, statement=f"CREATE EXTENSION {configuration.STATEMENTS}\n")

    def _run(self, program: str, *arguments: str, statement: str = "") -> None:
        """Run a program of the installation to its end, as the server's account; a statement is its standard input."""
        argv = [str(self._programs.program(program)), *arguments]
        if statement:
            argv = ["/bin/sh", "-c", 'printf %s "$0" | exec "$@"', statement, *argv]
        self._run_command(argv, program)

    def _run_command(self, argv: list[str], program: str = "") -> None:
        """Run any program to its end, as the server's account; `program` is its name in messages."""
        program = program or argv[0]
        with tempfile.TemporaryFile() as output:
            running = self._under_way = self._guarded(argv, output.fileno())
            try:
                status = running.wait(_STEP_TIMEOUT_S)
            except TimeoutError:
                words = _last_lines(output.fileno())
                raise ClusterProblem(f"{program} takes longer than {_STEP_TIMEOUT_S:.0f} s", words) from None
            finally:
                self._under_way = None
                running.stop()
            if status != 0:
                words = _last_lines(output.fileno())
                hint = own_libraries_hint(words, "pass the directory of an installed server's programs with --pg-bin")
                raise ClusterProblem(f"{program} failed:\n{words}", hint)

    def _start(self) -> None:
        argv = [
            str(self._programs.program("postgres")),
            *("-D", str(self.data_dir)),
            # On the command line because a kept cluster gets a new socket directory each time.
            *("-c", "listen_addresses="),
            *("-c", f"port={PORT}"),
            *("-c", f"unix_socket_directories={_listed(self.socket_dir)}"),
        ]
        descriptor = self._log.open_log(_LOG)
        try:
            said_before = os.fstat(descriptor).st_size
            self._server = self._guarded(argv, descriptor)
            self._wait_until_ready(self._server, said_before)
        finally:
            os.close(descriptor)

    def _wait_until_ready(self, server: Guarded, said_before: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        with self._data() as data:
            while not _is_ready(data, server.pid):
                if server.returncode is not None:
                    raise ClusterProblem(f"the throwaway server did not start:\n{self._log_tail(said_before)}")
                if time.monotonic() > deadline:
                    words = self._log_tail(said_before)
                    raise ClusterProblem(f"the throwaway server is not ready after {_START_TIMEOUT_S:.0f} s:\n{words}")
                time.sleep(0.01)

    def _log_tail(self, said_before: int) -> str:
        try:
            with self._log.open_file(_LOG, owners=(os.geteuid(),)) as file:
                return _last_lines(file.fileno(), said_before)
        except OSError:
            return _NOTHING_PRINTED

    def _end(self, mode: StopMode) -> bool:
        """Whether it ended when asked to; if not, the guard has killed it and removed the directory."""
        server, self._server = self._server, None
        if server is None:
            return True
        try:
            steps: tuple[tuple[StopMode, float], ...] = ((mode, self._grace_s), ("immediate", _IMMEDIATE_TIMEOUT_S))
            for step, patience_s in steps:
                server.send_signal(_SIGNALS[step])
                try:
                    server.wait(patience_s)
                except TimeoutError:
                    continue
                return True
            return False
        finally:
            server.stop()

    def _guarded(self, argv: list[str], output: int) -> Guarded:
        ours = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        try:
            return start_guarded(
                argv,
                signal="INT",
                then="QUIT",
                grace_s=self._grace_s,
                remove=(self.work_dir,),
                uid=self._account.uid,
                gid=self._account.gid,
                stdout=output,
                stderr=output,
                env={**ours, "LC_ALL": "C", **self._programs.environment()},
                cwd=self.work_dir,
            )
        except OSError as problem:
            raise ClusterProblem(f"{argv[0]} cannot be started: {problem.strerror}") from problem


def private_directory(account: Account) -> Path:
    """A new directory of ours that the account can enter and not write, with a path short enough for a socket below.

    Raises:
        ClusterProblem: There is no place for it that the account can enter, and in which no other account can rename.
    """
    try:
        places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    except FileNotFoundError as problem:
        raise ClusterProblem("no directory for temporary files can be written", "set TMPDIR to one") from problem
    for place in dict.fromkeys(places):
        longest = place / "pgtop-12345678" / _OF_ACCOUNT / f".s.PGSQL.{PORT}"
        if len(os.fsencode(longest)) > _LONGEST_SOCKET or not account.can_enter(place):
            continue
        if account.uid is not None and not is_private_place(place):
            continue
        try:
            directory = Path(tempfile.mkdtemp(prefix="pgtop-", dir=place))
        except OSError:
            continue
        (directory / guard.MARKER).touch()
        directory.chmod(0o700 if account.uid is None else 0o711)
        return directory
    raise ClusterProblem(
        f"{account.name} can use no directory for temporary files",
        "set TMPDIR to one with a short path that all users may enter",
    )


def _kept(keep: Path, account: Account) -> ForeignDirectory:
    """Return the directory to keep a cluster in, made or found fit.

    Raises:
        ClusterProblem: It holds something else, or the account cannot get there.
    """
    directory = keep.expanduser().absolute()
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True)
    elif not directory.is_dir():
        raise ClusterProblem(f"{keep} is not a directory")
    home = ForeignDirectory.find(directory)
    if not home.has(KEPT):
        if home.names():
            raise ClusterProblem(
                f"{keep} is not empty and was not made by pgtop-tune", "pass a new or an empty directory"
            )
        home.replace(KEPT, b"")
        account.take(home)
    if not account.can_enter(directory):
        raise ClusterProblem(
            f"the server runs as {account.name}, which cannot access {keep}",
            "pass a directory whose parents all users may enter",
        )
    return home


def _is_ready(data: ForeignDirectory, pid: int) -> bool:
    try:
        lines = data.read("postmaster.pid", 4096).decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    return len(lines) > _STATUS_LINE and lines[0] == str(pid) and lines[_STATUS_LINE].strip() == "ready"


def _listed(path: ForeignPath) -> str:
    """A path as an element of a list of PostgreSQL's, in which blanks and commas mean something."""
    escaped = str(path).replace('"', '""')
    return f'"{escaped}"'


_NOTHING_PRINTED: Final = "(it printed nothing)"


def _last_lines(descriptor: int, offset: int = 0) -> str:
    """The last lines of an open file that lie behind an offset in bytes, made safe to show."""
    begin = max(offset, os.fstat(descriptor).st_size - 16_384)
    text = os.pread(descriptor, 16_384, begin).decode("utf-8", "replace")
    return "\n".join(printable_lines(text)[-_LOG_LINES:]) or _NOTHING_PRINTED
