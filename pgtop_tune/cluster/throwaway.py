"""A server of our own: made in a moment, reached only through a socket in a private directory, gone when we are.

It has a directory of ours, which others can enter and not write: in it stand its log, copied programs and what they
print, and one directory of the server's account with sockets and data.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from msgspec import Struct

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.foreign_directory import ForeignDirectory, ForeignPath, handed_over, is_private_place
from pgtop_tune.base.safe_text import printable, printable_lines
from pgtop_tune.base.server_packages import own_libraries_hint
from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.process import guard
from pgtop_tune.process.guarded_program import Guarded, start_guarded

# The account of the server: PostgreSQL refuses to run as root.

UNPRIVILEGED: Final = ("postgres", "nobody")
"""Accounts taken when we are root, the first that exists."""

_LOOK_TIMEOUT_S: Final = 10.0
_NOT_COPIED: Final = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "doc", "man", "locale")


class Account(Struct, frozen=True):
    """The account of the server.

    Attributes:
        name: Name for messages.
        uid: User to change to; None where we are that user already.
        gid: Its group; None where uid is.
    """

    name: str
    uid: int | None = None
    gid: int | None = None

    def own(self, parent: Path, name: str) -> ForeignDirectory:
        """Make a directory of the account in one of ours.

        Raises:
            OSError: It cannot be made or given away.
        """
        return handed_over(parent, name, self.uid, self.gid)

    def take(self, directory: ForeignDirectory) -> None:
        """Give an open directory to the account.

        Raises:
            OSError: We may not.
        """
        if self.uid is not None and self.gid is not None:
            directory.give_to(self.uid, self.gid)

    def can_enter(self, directory: Path) -> bool:
        """Return whether every directory on the way, and this one, lets the account in."""
        if self.uid is None:
            return os.access(directory, os.X_OK)
        return self._succeeds(["/bin/sh", "-c", 'cd -- "$0"', str(directory)], {})

    def can_run(self, binaries: Binaries) -> bool:
        """Return whether the account may run these programs where they are."""
        return all(self.can_run_it(binaries, name) for name in ("postgres", "initdb"))

    def can_run_it(self, binaries: Binaries, name: str) -> bool:
        """Return whether the account may run one of these programs where it is."""
        return self.uid is None or self._succeeds([str(binaries.program(name)), "--version"], binaries.environment())

    def _succeeds(self, command: list[str], extra: dict[str, str]) -> bool:
        try:
            answer = subprocess.run(
                command,
                user=self.uid,
                group=self.gid,
                extra_groups=[],
                env={**_own_variables(), **extra},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_LOOK_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return answer.returncode == 0


def _own_variables() -> dict[str, str]:
    """Return what an account's processes get of our environment, which may have secrets."""
    return {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}


def server_account() -> Account:
    """Return the account the server is to run as: ours, or an unprivileged one when we are root.

    Raises:
        ClusterProblem: We are root, and there is no such account or we may not change to it.
    """
    if os.geteuid() != 0:
        return Account("this user")
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        account = Account(name, entry.pw_uid, entry.pw_gid)
        if not account.can_enter(Path("/")):
            raise ClusterProblem(
                f"PostgreSQL does not run as root, and root cannot switch to the user {name} here",
                "run this command as an ordinary user",
            )
        return account
    raise ClusterProblem(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(UNPRIVILEGED)}",
        "create one (useradd --system postgres), or run this command as an ordinary user",
    )


def copy_for_everybody(binaries: Binaries, target: Path) -> Binaries:
    """Copy an installation to where its server's account can reach it, for instance out of root's home.

    Args:
        target: An existing directory that the account can enter.

    Returns:
        The copy; its programs find their libraries by the same relative paths.

    Raises:
        ClusterProblem: It cannot be copied, or another account could lead us to files of ours through it.
    """
    root = binaries.bin_dir.parent
    if os.geteuid() == 0 and not is_private_place(binaries.bin_dir):
        raise ClusterProblem(
            f"the programs in {binaries.bin_dir} belong to another account, and root does not copy them",
            "pass the directory of an installed server's programs with --pg-bin",
        )
    # A wheel keeps shared libraries beside the package, three levels above its programs: keep that distance.
    copy = target / "package" / root.name
    beside = (
        [directory for directory in root.parent.parent.glob("*.libs") if directory.is_dir()]
        if root.parent != Path("/")
        else []
    )
    try:
        for part in ("bin", "lib", "share"):
            if (root / part).is_dir():
                shutil.copytree(root / part, copy / part, ignore=_NOT_COPIED)
        for libraries in beside:
            shutil.copytree(libraries, target / libraries.name)
        for path in (target, *target.rglob("*")):
            mode = path.stat().st_mode
            path.chmod(mode | 0o055 if path.is_dir() or mode & 0o100 else mode | 0o044)
    except (OSError, shutil.Error) as problem:
        raise ClusterProblem(f"the programs in {binaries.bin_dir} cannot be copied: {problem}") from problem
    library_path = binaries.library_path
    if library_path is not None and library_path.is_relative_to(root):
        library_path = copy / library_path.relative_to(root)
    return Binaries(
        bin_dir=copy / "bin",
        version_num=binaries.version_num,
        version=binaries.version,
        origin=binaries.origin,
        library_path=library_path,
    )


# The settings of the server as lines of a configuration file.

SETTINGS_FILE: Final = "pgtop-tune.conf"
STATEMENTS: Final = "pg_stat_statements"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*\Z")
_LIBRARY_DIRS: Final = ("lib", "lib/postgresql", "lib64", "lib64/pgsql")


def default_settings(binaries: Binaries) -> dict[str, str]:
    """Return the settings that every throwaway server has unless others are given."""
    settings = {"cluster_name": "pgtop-tune", "track_io_timing": "on"}
    if has_statements(binaries):
        settings["shared_preload_libraries"] = STATEMENTS
    return settings


def has_statements(binaries: Binaries) -> bool:
    """Return whether this installation comes with pg_stat_statements."""
    root = binaries.bin_dir.parent
    return any((root / directory / f"{STATEMENTS}.so").exists() for directory in _LIBRARY_DIRS)


def configuration_lines(settings: Mapping[str, str]) -> str:
    """Return the text of a configuration file.

    Raises:
        ClusterProblem: A name or a value that such a file cannot hold.
    """
    return "".join(f"{_checked_name(name)} = {_quoted_value(name, value)}\n" for name, value in settings.items())


def write_settings(settings: Mapping[str, str], data: ForeignDirectory) -> None:
    """Put the settings into SETTINGS_FILE of a data directory, in place of its content.

    Raises:
        ClusterProblem: A name or a value that such a file cannot hold.
        OSError: It cannot be written.
    """
    data.replace(SETTINGS_FILE, configuration_lines(settings).encode())


def read_settings(data: ForeignDirectory) -> str:
    """Return the text of SETTINGS_FILE; "" where it is missing."""
    try:
        return data.read(SETTINGS_FILE).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def include_settings(data: ForeignDirectory) -> None:
    """Make a new cluster's postgresql.conf read SETTINGS_FILE.

    Raises:
        OSError: It cannot be read or written.
    """
    data.replace("postgresql.conf", data.read("postgresql.conf") + f"\ninclude '{SETTINGS_FILE}'\n".encode())


def _checked_name(name: str) -> str:
    if not _NAME.match(name):
        raise ClusterProblem(f"{printable(name)} is not a parameter name")
    return name


def _quoted_value(name: str, value: str) -> str:
    if any(character in value for character in "\n\r\0"):
        raise ClusterProblem(f"the value of {name} contains a line break", "pass it on one line")
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


SUPERUSER: Final = "postgres"
PORT: Final = 5432
KEPT: Final = ".pgtop-tune-kept"
"""Only a directory that is empty or holds a file of this name is taken for `keep`."""

StopMode = Literal["smart", "fast", "immediate"]
_SIGNALS: Final[dict[StopMode, str]] = {"smart": "TERM", "fast": "INT", "immediate": "QUIT"}

_DATA: Final = "data"
_LOG: Final = "server.log"
_OF_ACCOUNT: Final = "pg"
"""Name of the account's directory in ours; it holds sockets, and the data of a cluster that is not kept."""
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
        binaries: The programs that were given for it; a copy of them may run.
        bin_dir: Directory of these programs.
        user: The superuser's name; no password.
        port: Part of the socket's name.
        work_dir: Our directory, removed in the end.
        socket_dir: Directory of the socket, to be given as host.
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
        self.has_statements = has_statements(binaries)
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
        """Make a cluster, start it, and return when it takes connections.

        Args:
            binaries: The programs to make it of.
            keep: Where the cluster is to live and stay: a new or empty directory, or one that an earlier call made,
                whose cluster is then used again. None: it is removed in the end.
            settings: Values for postgresql.conf that override the defaults and replace those of an earlier call; None
                keeps the earlier ones. ALTER SYSTEM still overrides them.
            on_step: Takes the next step in plain words.

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
                raise ClusterProblem(f"the throwaway server cannot be created: {problem}") from problem
            raise
        return cluster

    @property
    def postmaster_pid(self) -> int:
        """Return the process id of the server.

        Raises:
            ClusterProblem: It does not run.
        """
        if self._server is None or self._server.returncode is not None:
            raise ClusterProblem("the throwaway server is not running")
        return self._server.pid

    def configure(self, settings: Mapping[str, str]) -> None:
        """Give the server other settings, as in `create`, and restart it.

        Raises:
            ClusterProblem: The server does not start with them; a kept cluster has its former settings again.
        """
        with self._with(settings):
            self.restart()

    def restart(self) -> None:
        """End the server (fast) and start it again; return when it takes connections.

        Raises:
            ClusterProblem: It does not come back; the message holds its last words.
        """
        if not self._end("fast"):
            raise ClusterProblem("the throwaway server did not stop, so it was killed and removed")
        self._start()

    def stop(self, mode: StopMode = "fast") -> None:
        """End the server and remove its directories; a second call does nothing.

        Args:
            mode: Shutdown mode, as of pg_ctl; a shutdown that takes too long becomes an immediate one.
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
            on_step(f"copying the programs so that {self._account.name} can read them")
            target = self.work_dir / "programs"
            target.mkdir()
            self._programs = copy_for_everybody(self.binaries, target)
        if self._has_cluster():
            self._check_major()
        else:
            on_step("creating the cluster")
            self._initdb()
            with self._data() as data:
                include_settings(data)
                write_settings(default_settings(self.binaries), data)
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
        """Write settings for a server that starts within the block; where the start fails, restore the former ones."""
        with self._data() as data:
            before = read_settings(data)
            if settings is not None:
                write_settings({**default_settings(self.binaries), **settings}, data)
            try:
                yield
            except ClusterProblem:
                if self._home.has(_DATA):
                    data.replace(SETTINGS_FILE, before.encode())
                raise

    def _check_major(self) -> None:
        with self._data() as data:
            major = data.read("PG_VERSION", 32).decode("ascii", "replace").strip()
        if major != str(self.binaries.major):
            raise ClusterProblem(
                f"{self._home.path} contains a cluster of PostgreSQL {major}, but the programs are version "
                f"{self.binaries.version}",
                f"pass the programs of version {major} with --pg-bin, or another directory with --keep",
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
            self._run("postgres", *arguments, statement=f"CREATE EXTENSION {STATEMENTS}\n")

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
                output_lines = _last_lines(output.fileno())
                raise ClusterProblem(f"{program} took longer than {_STEP_TIMEOUT_S:.0f} s", output_lines) from None
            finally:
                self._under_way = None
                running.stop()
            if status != 0:
                output_lines = _last_lines(output.fileno())
                hint = own_libraries_hint(
                    output_lines, "pass the directory of an installed server's programs with --pg-bin"
                )
                raise ClusterProblem(f"{program} failed:\n{output_lines}", hint)

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
            log_size_before = os.fstat(descriptor).st_size
            self._server = self._guarded(argv, descriptor)
            self._wait_until_ready(self._server, log_size_before)
        finally:
            os.close(descriptor)

    def _wait_until_ready(self, server: Guarded, log_size_before: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        with self._data() as data:
            while not _is_ready(data, server.pid):
                if server.returncode is not None:
                    raise ClusterProblem(f"the throwaway server did not start:\n{self._log_tail(log_size_before)}")
                if time.monotonic() > deadline:
                    log_lines = self._log_tail(log_size_before)
                    raise ClusterProblem(
                        f"the throwaway server is not ready after {_START_TIMEOUT_S:.0f} s:\n{log_lines}"
                    )
                time.sleep(0.01)

    def _log_tail(self, log_size_before: int) -> str:
        try:
            with self._log.open_file(_LOG, owners=(os.geteuid(),)) as file:
                return _last_lines(file.fileno(), log_size_before)
        except OSError:
            return _NOTHING_PRINTED

    def _end(self, mode: StopMode) -> bool:
        """End the server; return whether it ended when asked to: if not, the guard has killed it and removed the
        directory."""
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
                env={**_own_variables(), "LC_ALL": "C", **self._programs.environment()},
                cwd=self.work_dir,
            )
        except OSError as problem:
            raise ClusterProblem(f"{argv[0]} cannot be started: {problem.strerror}") from problem


def private_directory(account: Account) -> Path:
    """Return a new directory of ours that the account can enter and not write, with a path short enough for a socket
    below.

    Raises:
        ClusterProblem: There is no place for it that the account can enter, and in which no other account can rename.
    """
    try:
        places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    except FileNotFoundError as problem:
        raise ClusterProblem(
            "no directory for temporary files is writable", "set TMPDIR to a writable directory"
        ) from problem
    for parent in dict.fromkeys(places):
        longest = parent / "pgtop-12345678" / _OF_ACCOUNT / f".s.PGSQL.{PORT}"
        if len(os.fsencode(longest)) > _LONGEST_SOCKET or not account.can_enter(parent):
            continue
        if account.uid is not None and not is_private_place(parent):
            continue
        try:
            directory = Path(tempfile.mkdtemp(prefix="pgtop-", dir=parent))
        except OSError:
            continue
        (directory / guard.MARKER).touch()
        directory.chmod(0o700 if account.uid is None else 0o711)
        return directory
    raise ClusterProblem(
        f"{account.name} cannot use any directory for temporary files",
        "set TMPDIR to a directory with a short path that all users can access",
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
                f"{keep} is not empty and was not created by pgtop-tune", "pass a new or empty directory"
            )
        home.replace(KEPT, b"")
        account.take(home)
    if not account.can_enter(directory):
        raise ClusterProblem(
            f"the server runs as {account.name}, which cannot access {keep}",
            "pass a directory whose parent directories all users can access",
        )
    return home


def _is_ready(data: ForeignDirectory, pid: int) -> bool:
    try:
        lines = data.read("postmaster.pid", 4096).decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    return len(lines) > _STATUS_LINE and lines[0] == str(pid) and lines[_STATUS_LINE].strip() == "ready"


def _listed(path: ForeignPath) -> str:
    """Return a path as an element of a list of PostgreSQL's, in which blanks and commas mean something."""
    escaped = str(path).replace('"', '""')
    return f'"{escaped}"'


_NOTHING_PRINTED: Final = "(no output)"


def _last_lines(descriptor: int, offset: int = 0) -> str:
    """Return the last lines of an open file that lie behind an offset in bytes, made safe to show."""
    begin = max(offset, os.fstat(descriptor).st_size - 16_384)
    text = os.pread(descriptor, 16_384, begin).decode("utf-8", "replace")
    return "\n".join(printable_lines(text)[-_LOG_LINES:]) or _NOTHING_PRINTED
