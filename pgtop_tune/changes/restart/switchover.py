"""A promotion of the operator's standby on purpose, and the way back to the roles from before. Blocking.

    out    The primary is ended (fast), which sends its standby all WAL, and gets `standby.signal`: a start
           from here on makes no second primary of it. The standby is promoted, and the earlier primary follows it.
    back   The promoted server is ended (fast), then the other one. Where their control files have the same
           checkpoint, both have all data: `standby.signal` goes from one to the other, both are started as usual.

Nothing is copied, and nothing that was committed is lost. What is left to be done is read from the files of both alone:
the process that goes the way back when we are killed knows no password, and may begin at any step.

As a program: takes a pair as JSON on standard input, and goes the way back.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.changes.restart.outages import ServerOutages
from pgtop_tune.changes.restart.recovery import check_recorded, start_command
from pgtop_tune.changes.restart.start_again import is_up, start_until_ready, watched
from pgtop_tune.changes.server.session_runner import operator_session
from pgtop_tune.cluster.crash import postmaster_at, signalled, until_gone
from pgtop_tune.cluster.promotion import (
    ENDED,
    ENDED_AS_STANDBY,
    PROMOTE_FILE,
    STANDBY_FILE,
    ServerState,
    promote,
    read_state,
)
from pgtop_tune.cluster.service import run_program
from pgtop_tune.model.instance import ServerPair, ServerPlace
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.failures import PlainWords
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.process.mount_namespace import directory_at

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_MODULE: Final = "pgtop_tune.changes.restart.switchover"
_END_S: Final = 600.0
"""The last checkpoint of a large server takes long."""
_RECEIVED: Final = "SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn AS position"
_RECEIVED_S: Final = 10.0
_RECORD: Final = 100
"""Bytes that the record of a checkpoint has at least (CheckPoint of pg_control.h, with its header)."""
_POLL_S: Final = 0.02
_PAUSES_S: Final = (0.2, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
"""Time that the primary has to connect to the other server, and to replay its WAL, in each attempt."""


class PairOutages(ServerOutages):
    """Outages of a primary, one of which is the promotion of its standby.

    Args:
        pair: The servers, both ours to start.
        conninfo: The connection to the standby.
    """

    def __init__(self, pair: ServerPair, conninfo: ConnInfo) -> None:
        super().__init__(pair.primary)
        self._pair: Final = pair
        self._conninfo: Final = conninfo

    @property
    def place(self) -> ServerPair:
        """See `OutageServers.place`."""
        return self._pair

    @property
    def actions(self) -> Mapping[str, Callable[[], None]]:
        """Return what can be done to it, by name."""
        return {**super().actions, "promote": self.promote}

    def guarded(self) -> AbstractContextManager[None]:
        """Have a process of its own go the way back when this program is gone. Raises ClusterProblem."""
        return watched(_MODULE, self._pair, lambda: _is_as_before(self._pair))

    def promote(self) -> None:
        """End the primary (fast), promote its standby, and have the earlier primary follow it.

        Raises:
            PgtopError: A step failed; `restore` goes the way back from there.
        """
        with _alone(self._pair), PlainWords(self._conninfo):
            self._promote()

    def _promote(self) -> None:
        primary, standby = self._pair.primary, self._pair.standby
        with closing(operator_session(self._conninfo, OwnSessions())) as session:
            _end(primary)
            with directory_at(primary.data_directory) as data:
                ended = read_state(data)
                if ended.state != ENDED:
                    # What it committed last may be in its own WAL alone.
                    raise ClusterProblem(
                        f"{primary.endpoint} crashed as it ended, or runs again: its standby stays one"
                    )
                data.replace(STANDBY_FILE, b"")
            if is_up(primary):
                raise ClusterProblem(f"{primary.managed} starts {primary.endpoint} by itself", "stop its service first")
            _until_received(session, ended.checkpoint + _RECORD)
        with directory_at(standby.data_directory) as data:
            promote(data, lambda: _tell(standby))
        _follow(self._pair)

    def restore(self) -> None:
        """Have both servers run in the roles from before. Raises ClusterProblem where one does not."""
        switch_back(self._pair)


def _until_received(session: OperatorSession, position: int) -> None:
    """Wait until a standby has WAL up to a position. Raises ClusterProblem where it does not get it."""
    deadline = time.monotonic() + _RECEIVED_S
    while (session.rows(_RECEIVED)[0]["position"] or 0) < position:
        if time.monotonic() > deadline:
            raise ClusterProblem("the standby has not received all WAL of its primary: it was not promoted")
        time.sleep(_POLL_S)


def switch_back(pair: ServerPair) -> None:
    """Give both servers the roles from before, and start them; nothing changes where they have them.

    Raises:
        ClusterProblem: A server does not end or start, or the primary does not get the WAL of the other one.
    """
    primary, standby = pair.primary, pair.standby
    try:
        for server_place in (primary, standby):
            check_recorded(server_place)
        with _alone(pair), ExitStack() as starts:
            is_follower = _has(primary, STANDBY_FILE)
            if not (is_follower or _has(standby, STANDBY_FILE) or (is_up(primary) and is_up(standby))):
                raise ClusterProblem(
                    f"{standby.endpoint} is no standby any more, so no server is started",
                    "decide which of them is the primary, and make a standby of the other one",
                )
            # Also where the other one fails.
            starts.callback(start_until_ready, standby)
            if is_follower:
                _change_roles(pair)
            starts.callback(start_until_ready, primary)
    except OSError as error:
        raise ClusterProblem(f"a data directory cannot be used: {error.strerror}") from None


@contextmanager
def _alone(pair: ServerPair) -> Iterator[None]:
    """Keep other processes from changing the roles meanwhile. Raises ClusterProblem where one is at it."""
    with directory_at(pair.primary.data_directory) as data:
        try:
            data.lock()
        except BlockingIOError:
            raise ClusterProblem(
                f"another process is changing the roles of {pair.endpoint}", "wait for its end, then try again"
            ) from None
        yield


def _change_roles(pair: ServerPair) -> None:
    """End both servers when the primary has all WAL, and leave them with the files of their roles.

    A service may start either just before its file changes: it is ended again, and its checkpoint tells whether it has
    written anything meanwhile.
    """
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        _end(pair.standby)
        # What it has sent is replayed only now.
        time.sleep(pause_s)
        _end(pair.primary)
        _remove(pair.standby, PROMOTE_FILE)
        primary_state, standby_state = _state(pair.primary), _state(pair.standby)
        # Without a promotion the primary has the newer checkpoint.
        is_whole = {
            ENDED: primary_state == ServerState(ENDED_AS_STANDBY, standby_state.checkpoint),
            ENDED_AS_STANDBY: primary_state.checkpoint >= standby_state.checkpoint,
        }.get(standby_state.state)
        if is_whole:
            with directory_at(pair.standby.data_directory) as data:
                if not data.has(STANDBY_FILE):
                    data.replace(STANDBY_FILE, b"")
            _end(pair.standby)
            if _state(pair.standby).checkpoint == standby_state.checkpoint:
                _remove(pair.primary, STANDBY_FILE)
                return _end(pair.primary)
        start_until_ready(pair.standby)
        if is_whole is not None:
            # One that has crashed may be a standby, which has no WAL for the primary.
            _follow(pair)
    raise ClusterProblem(
        f"{pair.primary.endpoint} does not get the WAL of {pair.standby.endpoint}, which is the primary now",
        "look at the logs of both; pg_rewind, or a new base backup, makes a standby of the former",
    )


def _follow(pair: ServerPair) -> None:
    """Start the primary as a standby of the other server, unless it runs. Raises ClusterProblem."""
    server_place = pair.primary
    if is_up(server_place):
        return
    until_gone(server_place)
    settings = ("-c", f"primary_conninfo={pair.source}", "-c", "primary_slot_name=")
    program = str(Path(server_place.program).with_name("pg_ctl"))
    command = ("start", "-D", server_place.data_directory, "-w", "-l", server_place.log_file or os.devnull)
    options = shlex.join((*server_place.arguments, *settings))
    ran = run_program((program, *command, "-o", options), server_place, as_owner=True)
    if ran.status != 0:
        reasons = "\n".join(ran.output_lines)
        raise ClusterProblem(f"{server_place.endpoint} does not start as a standby:\n{reasons}")


def _end(server_place: ServerPlace) -> None:
    """End a server (fast), by its service where that runs it. Raises ClusterProblem where it does not end.

    A service may start another postmaster at once, which is left alone.
    """
    data = Path(server_place.data_directory)
    pid = postmaster_at(data)
    if server_place.unit and server_place.start:
        run_program(
            ["stop" if word == "start" else word for word in server_place.start],
            server_place,
            as_owner=server_place.as_owner,
        )
    signalled(server_place, signal.SIGINT, _END_S)
    if pid is not None and postmaster_at(data) == pid:
        raise ClusterProblem(
            f"{server_place.endpoint} did not end within {_END_S:.0f} s", f"later: {start_command(server_place)}"
        )
    until_gone(server_place)


def _tell(standby: ServerPlace) -> None:
    if not signalled(standby, signal.SIGUSR1):
        raise ClusterProblem(f"the standby {standby.endpoint} does not run: it was not promoted")


def _state(server_place: ServerPlace) -> ServerState:
    with directory_at(server_place.data_directory) as data:
        return read_state(data)


def _has(server_place: ServerPlace, name: str) -> bool:
    with directory_at(server_place.data_directory) as data:
        return data.has(name)


def _remove(server_place: ServerPlace, name: str) -> None:
    with directory_at(server_place.data_directory) as data:
        data.unlink(name)


def _is_as_before(pair: ServerPair) -> bool:
    return is_up(pair.primary) and is_up(pair.standby) and not _has(pair.primary, STANDBY_FILE)


def main() -> None:
    """Go the way back with the pair that standard input has; without one, nothing was done to any."""
    text = sys.stdin.buffer.read()
    try:
        if text:
            switch_back(msgspec.json.decode(text, type=ServerPair))
    except ClusterProblem as problem:
        sys.exit(problem.message)


if __name__ == "__main__":
    main()
