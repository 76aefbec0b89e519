"""A copy of a server's data with a server of our own on it; both are gone when we are.

Source: pg_basebackup reference page; "Making a Base Backup"; backup of tablespaces: --tablespace-mapping.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from pgtop_tune.cluster import auto_conf, configuration
from pgtop_tune.cluster.account import Account, copy_for_everybody
from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.cluster.leftover_copies import PREFIX, note_owner
from pgtop_tune.cluster.own_server import OwnServer, private_directory
from pgtop_tune.cluster.stopped_directory import TABLESPACES, WAL, StoppedDirectory, check_stopped
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.process import guard
from pgtop_tune.secret import Secret

BACKUP: Final = "pg_basebackup"
_CONF: Final = "postgresql.conf"
_HBA: Final = "local all all trust\n"
"""Whoever can enter the socket's directory: the server's account and root."""
_EMPTY: Final = ("pg_replslot", "pg_stat_tmp")
"""Directories that a server needs, of which nothing is copied."""
_STALE: Final = ("standby.signal", "recovery.signal")
_COPY_TIMEOUT_S: Final = 6 * 3600.0
_GRACE_S: Final = 60.0
_RECOVERY_S: Final = 1800.0
_FAST: Final = (
    "--format=plain", "--wal-method=stream", "--checkpoint=fast", "--no-sync", "--no-manifest", "--no-password",
)  # fmt: skip


class BackupSource(Struct, frozen=True):
    """The server that is copied.

    Attributes:
        words: Where it is, in pg_basebackup's options.
        environment: The same in libpq's variables.
        password: Given through a file; None leaves it to libpq.
        tablespaces: (oid, directory) of those outside of the data directory.
        slot: Whether a temporary slot may hold the WAL of the backup; it is gone with the connection.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    password: Secret | None = None
    tablespaces: tuple[tuple[int, str], ...] = ()
    slot: bool = True


class CopiedServer(OwnServer):
    """One copy; `create` makes its directories. A context manager that removes them.

    Attributes:
        home: Holds data, tablespaces and log.
    """

    title = "copy"
    start_timeout_s = _RECOVERY_S
    at_our_end = "QUIT"

    def __init__(self, programs: Binaries, account: Account, work_dir: Path, home: Path) -> None:
        super().__init__(programs, account, work_dir, home, (work_dir, home), _GRACE_S)
        self.home = home

    @classmethod
    def create(cls, programs: Binaries, account: Account, directory: Path) -> Self:
        """Makes empty directories.

        Args:
            directory: Where the data go, on the file system that is meant.

        Raises:
            ClusterProblem: They cannot be made.
        """
        try:
            home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory))
        except OSError as problem:
            raise ClusterProblem(
                f"no directory for a copy can be created in {directory}: {problem.strerror}", "pass another --directory"
            ) from problem
        (home / guard.MARKER).touch()
        account.own(home)
        try:
            if not account.can_enter(home):
                raise ClusterProblem(
                    f"{account.name} cannot enter {directory}", "pass a --directory that the server's user may enter"
                )
            copy = cls(programs, account, private_directory(account), home)
            note_owner(home, copy.socket_dir)
            return copy
        except BaseException:
            guard.remove_ours(str(home))
            raise

    def take_backup(self, source: BackupSource, programs: Binaries) -> None:
        """Copies a running server. It goes on meanwhile; the one thing that changes there is a checkpoint.

        Args:
            programs: Whose pg_basebackup is taken.

        Raises:
            ClusterProblem: It cannot be copied; the message holds pg_basebackup's last words.
        """
        argv = [str(self._runnable(programs).program(BACKUP)), *_FAST, f"--pgdata={self.data_dir}", *source.words]
        argv += [] if source.slot else ["--no-slot"]
        for oid, directory in source.tablespaces:
            argv.append(f"--tablespace-mapping={_mapped(directory)}={_mapped(str(self._tablespace(oid)))}")
        environment = dict(source.environment)
        if source.password is not None:
            environment["PGPASSFILE"] = str(self._passfile(source.password))
        self._run_words(BACKUP, argv, environment | programs.environment(), _COPY_TIMEOUT_S)

    def copy_stopped(self, source: StoppedDirectory) -> None:
        """Copies a directory in which no server runs, file by file; shared extents where the file system has them.

        Raises:
            ClusterProblem: It cannot be copied, or a server was started in it.
        """
        self._copy([source.path / name for name in source.entries], self._made(self.data_dir))
        self._copy_content(source.wal, self._made(self.data_dir / WAL))
        for name in (TABLESPACES, *_EMPTY):
            self._made(self.data_dir / name)
        for oid, directory in source.tablespaces:
            self._made(self._tablespace(oid).parent)
            self._copy_content(Path(directory), self._made(self._tablespace(oid)))
            self._link(oid)
        # A server that was started meanwhile wrote into the files that were read.
        check_stopped(source.path)

    def _made(self, directory: Path) -> Path:
        if not directory.is_dir():
            directory.mkdir(mode=0o700)
            self._account.own(directory)
        return directory

    def _copy(self, sources: Sequence[Path], target: Path) -> None:
        # GNU's cp clones by itself where it can; others know neither of these options.
        first = ["cp", "-a", "--reflink=auto"] if _has_reflink() else ["cp", "-Rp"]
        self._run_words("cp", [*first, *map(str, sources), str(target)], {}, _COPY_TIMEOUT_S)

    def _copy_content(self, directory: Path, target: Path) -> None:
        if sources := sorted(directory.iterdir()):
            self._copy(sources, target)

    def clone(self, other: CopiedServer) -> None:
        """Takes the data of another copy, which must not run; shared extents where the file system has them.

        Raises:
            ClusterProblem: They cannot be copied.
        """
        names = [name for name in ("data", "tablespaces") if (other.home / name).is_dir()]
        self._copy([other.home / name for name in names], self.home)
        for link in (self.data_dir / TABLESPACES).iterdir():
            if link.is_symlink():
                link.unlink()
                self._link(int(link.name))

    def configure(self, settings: Mapping[str, str]) -> None:
        """Replaces the configuration that came with the data.

        Raises:
            ClusterProblem: A name or a value that a configuration file cannot hold.
        """
        for name in _STALE:
            (self.data_dir / name).unlink(missing_ok=True)
        self._write(_CONF, configuration.lines(settings))
        self._write(auto_conf.FILE_NAME, "")
        self._write("pg_hba.conf", _HBA)
        self._write("pg_ident.conf", "")

    def start(self) -> None:
        """Returns when it takes connections.

        Raises:
            ClusterProblem: It does not start; the message holds its last words.
        """
        self._start()

    def halt(self) -> None:
        """Ends the server in order; its directories stay.

        Raises:
            ClusterProblem: It did not end in order.
        """
        if not self._end("fast"):
            raise ClusterProblem("a copy did not stop, so it was killed and removed")

    def _tablespace(self, oid: int) -> Path:
        return self.home / "tablespaces" / str(oid)

    def _link(self, oid: int) -> None:
        link = self.data_dir / TABLESPACES / str(oid)
        link.symlink_to(self._tablespace(oid))
        self._account.own(link)

    def _runnable(self, programs: Binaries) -> Binaries:
        if self._account.can_run_it(programs, BACKUP):
            return programs
        target = self._work_dir / "programs"
        target.mkdir()
        return copy_for_everybody(programs, target)

    def _passfile(self, password: Secret) -> Path:
        path = self._work_dir / "passfile"
        escaped = password.reveal().replace("\\", "\\\\").replace(":", "\\:")
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"*:*:*:*:{escaped}\n")
        self._account.own(path)
        return path

    def _write(self, name: str, text: str) -> None:
        path = self.data_dir / name
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        self._account.own(path)


def _mapped(path: str) -> str:
    return path.replace("=", "\\=")


def _has_reflink() -> bool:
    cp = shutil.which("cp")
    if cp is None:
        return False
    answer = subprocess.run([cp, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return "GNU" in answer.stdout


def with_backup(found: Sequence[Binaries], major: int) -> Binaries | None:
    """Programs with a pg_basebackup for a server of this major: of the same one first, else of the next higher."""
    fitting = [each for each in found if each.major >= major and os.access(each.program(BACKUP), os.X_OK)]
    return min(fitting, key=lambda each: each.major, default=None)
