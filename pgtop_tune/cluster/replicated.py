"""Throwaway servers that fail on purpose: a primary, with a streaming standby where it is to be promoted.

A standby begins with a copy of the data directory of its primary, which is ended for the copy: every major can do that
without a further program. WAL is kept by size and not by a slot: a standby that ends cannot fill the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.sql_quoting import conninfo_value
from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.cluster.postmaster import PID_FILE
from pgtop_tune.cluster.promotion import STANDBY_FILE, promote
from pgtop_tune.cluster.throwaway import (
    SUPERUSER,
    Throwaway,
    default_settings,
    private_directory,
    server_account,
    write_settings,
)
from pgtop_tune.process import guard
from pgtop_tune.process.guarded_program import Guarded, start_guarded

_REPLICATED: Final[Mapping[str, str]] = {"wal_keep_size": "1GB", "wal_retrieve_retry_interval": "200ms"}
_CRASH_S: Final = 30.0
_HOLD: Final = """
trap told=1 INT
while [ -z "$told" ]; do sleep 100000 & wait; done
looks=0
runs() { for file; do { read -r pid < "$file" && kill -0 "$pid"; } 2> /dev/null && return; done; return 1; }
while [ $looks -lt 150 ] && runs "$@"; do looks=$((looks + 1)); sleep 0.1; done
"""
"""Holds the directories of servers of which none may run just now: ends when it is told to and the servers have ended.

The guards of running servers remove a directory first: it is not taken from under a server that stops."""
_HOLD_GRACE_S: Final = 20.0


class ReplicatedServer(Throwaway):
    """A throwaway server that can crash, follow another one, and be promoted."""

    @classmethod
    def standby_of(cls, primary: ReplicatedServer) -> Self:
        """Make a running standby of a running primary. Raises ClusterProblem."""
        account = server_account()
        work_dir = private_directory(account)
        standby: Self | None = None
        try:
            standby = cls(primary.binaries, account, work_dir, None)
            standby._programs = primary._programs
            standby.follow(primary)
        except BaseException as problem:
            if standby is not None:
                standby.stop("immediate")
            guard.remove_ours(str(work_dir))
            if isinstance(problem, OSError):
                raise ClusterProblem(f"the throwaway standby cannot be created: {problem}") from problem
            raise
        return standby

    @property
    def runs(self) -> bool:
        """Return whether its postmaster runs."""
        return self._server is not None and self._server.returncode is None

    def crash(self) -> None:
        """Kill the postmaster, and return when the last process of the server is gone."""
        server, self._server = self._server, None
        if server is not None:
            server.send_signal("KILL")
            with suppress(TimeoutError):
                # The guard ends the processes that the postmaster leaves behind, and then itself.
                server.wait(_CRASH_S)
            server.stop()

    def begin(self) -> None:
        """Start a server that does not run. Raises ClusterProblem with its last words."""
        if not self.runs:
            self._start()

    def end(self) -> None:
        """End the server (fast); a primary sends its standby all of its WAL first.

        Raises:
            ClusterProblem: It did not stop, and was killed and removed.
        """
        if not self._end("fast"):
            raise ClusterProblem("the throwaway server did not stop, so it was killed and removed")

    def follow(self, primary: ReplicatedServer) -> None:
        """Become a standby of a server, with a copy of its data in place of ours; both are ended and started for it.

        Raises:
            ClusterProblem: The copy cannot be made, or a server does not start.
        """
        self.end()
        primary.end()
        self._run_command(["/bin/rm", "-rf", "--", str(self.data_dir)])
        self._run_command(["/bin/cp", "-a", "--", str(primary.data_dir), str(self.data_dir)])
        address = f"host={conninfo_value(str(primary.socket_dir))} port={primary.port} user={SUPERUSER}"
        with self._data() as data:
            data.replace(STANDBY_FILE, b"")
            write_settings({**default_settings(self.binaries), **_REPLICATED, "primary_conninfo": address}, data)
        primary.begin()
        self.begin()

    def promote(self) -> None:
        """Make a primary of the standby, and return when it is one.

        Raises:
            ClusterProblem: It does not become one in time.
        """
        if self._server is None:
            raise ClusterProblem("the throwaway standby is not running")
        with self._data() as data:
            promote(data, partial(self._server.send_signal, "USR1"))


class ThrowawayServers:
    """A throwaway primary, and its standby where there is one; a context manager that removes both.

    Their addresses stay the same: after a promotion the earlier primary is made the standby.

    Attributes:
        conninfo: Connection of libpq that leads to the primary, whichever server that is.
    """

    def __init__(self, primary: ReplicatedServer, standby: ReplicatedServer | None, hold: Guarded) -> None:
        self._servers: Final = (primary,) if standby is None else (primary, standby)
        self._primary = primary
        self._is_torn = False
        self._hold: Final = hold
        hosts = ",".join(str(server.socket_dir) for server in self._servers)
        ports = ",".join(str(server.port) for server in self._servers)
        self.conninfo: Final = (
            f"host={conninfo_value(hosts)} port={ports} user={SUPERUSER} dbname=postgres"
            + " target_session_attrs=read-write" * (standby is not None)
        )

    @classmethod
    def create(cls, binaries: Binaries, *, with_standby: bool, on_step: Callable[[str], None]) -> Self:
        """Make the servers, and return when they take connections.

        Args:
            binaries: The programs to make them of.
            with_standby: Whether there is a standby.
            on_step: Takes the next step in plain words.

        Raises:
            ClusterProblem: They cannot be made or started.
        """
        created: list[ReplicatedServer] = []
        try:
            created.append(ReplicatedServer.create(binaries, settings=_REPLICATED, on_step=on_step))
            if with_standby:
                on_step("creating the standby")
                created.append(ReplicatedServer.standby_of(created[0]))
            hold = start_guarded(
                ["/bin/sh", "-c", _HOLD, "sh", *(f"{server.data_dir}/{PID_FILE}" for server in created)],
                grace_s=_HOLD_GRACE_S,
                remove=[server.work_dir for server in created],
            )
        except BaseException as problem:
            for server in created:
                server.stop("immediate")
            if isinstance(problem, OSError):
                raise ClusterProblem(f"the throwaway servers cannot be guarded: {problem.strerror}") from problem
            raise
        return cls(created[0], created[1] if with_standby else None, hold)

    @staticmethod
    def guarded() -> AbstractContextManager[None]:
        """Return a context without effect: the guards of these servers stand all the time."""
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in reversed(self._servers):
            server.stop()
        self._hold.send_signal("KILL")
        self._hold.stop()

    @property
    def primary(self) -> ReplicatedServer:
        """Return the server that is the primary now."""
        return self._primary

    @property
    def actions(self) -> Mapping[str, Callable[[], None]]:
        """Return what can be done to the primary, by name."""
        return {"restart": self.restart, "kill": self.kill, "promote": self.promote}

    @property
    def place(self) -> None:
        """Return None: these servers end with us, and nothing has to start them again."""
        return None

    def restart(self) -> None:
        """Restart the primary (fast). Raises ClusterProblem where it does not come back."""
        self._primary.restart()

    def kill(self) -> None:
        """Kill the postmaster of the primary, and start the server again. Raises ClusterProblem."""
        self._primary.crash()
        self._primary.begin()

    def promote(self) -> None:
        """End the primary (fast), and promote the standby. Raises ClusterProblem."""
        [standby] = [server for server in self._servers if server is not self._primary]
        self._is_torn = True
        self._primary.end()
        standby.promote()
        self._primary = standby

    def restore(self) -> None:
        """Have all servers run again, with the standby behind the primary.

        Raises:
            ClusterProblem: One does not start.
        """
        self._primary.begin()
        for server in self._servers:
            if server is not self._primary and (self._is_torn or not server.runs):
                server.follow(self._primary)
        self._is_torn = False
