"""A server of our own: made in a moment, reached only through a socket in a private directory, gone when we are."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from pgtop_tune.cluster import configuration
from pgtop_tune.cluster.account import Account, copy_for_everybody, server_account
from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.cluster.own_server import OwnServer, private_directory
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.paths import opened
from pgtop_tune.process import guard

SUPERUSER: Final = "postgres"
KEPT: Final = ".pgtop-tune-kept"
"""Only a directory that is empty or holds a file of this name is taken for `keep`."""
_GRACE_S: Final = {False: 10.0, True: 60.0}
"""How long a shutdown may take before it becomes an immediate one, by whether the cluster is kept."""


class Throwaway(OwnServer):
    """A running server of our own; `create` makes one. A context manager that stops it.

    It listens on a Unix socket only, trusts whoever can enter the socket's directory (its own account and root),
    runs as an unprivileged account when we are root, and ends when this process does, in whatever way.

    Attributes:
        binaries: The programs it was asked to be made of.
        bin_dir: Their directory.
        user: The superuser's name; no password.
        has_statements: Whether pg_stat_statements is in the databases postgres and template1.
    """

    title = "throwaway server"
    user: Final = SUPERUSER

    def __init__(self, binaries: Binaries, account: Account, work_dir: Path, keep: Path | None) -> None:
        home = work_dir if keep is None else keep
        super().__init__(binaries, account, work_dir, home, (work_dir,), _GRACE_S[keep is not None])
        self.binaries = binaries
        self.bin_dir = binaries.bin_dir
        self.has_statements = configuration.has_statements(binaries)
        self._keep = keep

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

    def configure(self, settings: Mapping[str, str]) -> None:
        """Gives it other settings, as those of `create`, and restarts it.

        Raises:
            ClusterProblem: It does not start with them; a cluster that is kept has its former ones again.
        """
        with self._with(settings):
            self.restart()

    def _make(self, settings: Mapping[str, str] | None, on_step: Callable[[str], None]) -> None:
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
            configuration.write(configuration.defaults(self.binaries), self.data_dir, self._account)
            if self.has_statements:
                self._create_extension()
        on_step("starting the server")
        with self._with(settings):
            self._start()

    @contextmanager
    def _with(self, settings: Mapping[str, str] | None) -> Iterator[None]:
        """What starts it within this has the settings; where it fails, the next start has those of before."""
        before = configuration.read(self.data_dir)
        if settings is not None:
            configuration.write({**configuration.defaults(self.binaries), **settings}, self.data_dir, self._account)
        try:
            yield
        except ClusterProblem:
            if self.data_dir.exists():
                configuration.put(before, self.data_dir, self._account)
            raise

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
