"""Recovery of a server that runs and lets nobody in: restores the old values in postgresql.auto.conf, and has the
server read its files again. Blocking.

The journal is not touched: when the server lets us in, taking the changes back finds them taken back and says so.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import ClusterProblem, ConnectionProblem
from pgtop_tune.changes.journal import Journal, path_for, read
from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.changes.restart.offline import restore
from pgtop_tune.changes.restart.recovery import KnownServer, holds_same_cluster, known_servers
from pgtop_tune.changes.server.markers import restoring_sql
from pgtop_tune.changes.server.reverting import ServerSelection
from pgtop_tune.changes.server.session_runner import operator_session
from pgtop_tune.changes.server.way_in import can_keep_out
from pgtop_tune.cluster.auto_conf import FILE_NAME
from pgtop_tune.cluster.postmaster import pid_of
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.way_in import OPTIONS
from pgtop_tune.process.mount_namespace import directory_at

_DEADLINE_S: Final = 5.0
_POLL_S: Final = 0.05


def let_in_again(
    conninfo: ConnInfo,
    selection: ServerSelection,
    directory: Path | None,
    tell: Callable[[str], None],
    set_id: str = "",
    written: Callable[[frozenset[str]], None] = lambda ids: None,
) -> bool:
    """Restore the file of a server that runs and lets nobody in, where a change of ours may be the reason.

    Args:
        conninfo: The server, which refuses the login.
        selection: Which of the changes in force are to be reverted.
        directory: Of the journals; paths.journal_dir() by default.
        tell: Told what is done.
        set_id: As for `recovery.elsewhere`.
        written: Told the ids of the changes whose old values were written.

    Returns:
        Whether the server lets us in now. False as well where its directory is not ours to change.

    Raises:
        JournalProblem: Another process is writing the journal.
    """

    def of_file(changes: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
        return _keeping_out(selection(changes), of_system=True)

    for server in known_servers(conninfo, of_file, directory, set_id):
        try:
            postmaster = _postmaster(server) if server.alone and holds_same_cluster(server) else None
            if postmaster is None:
                continue
            with Journal(server.name, directory) as journal:
                chosen = of_file(journal.text().in_force)
                changed = restore(server.server_place, chosen)
            if changed:
                written(frozenset(change.id for change in chosen))
                file = f"{server.server_place.data_directory}/{FILE_NAME}"
                tell(f"the server lets nobody in: old values are back in {file}")
            os.kill(postmaster, signal.SIGHUP)
        except (ClusterProblem, OSError):
            continue
        return _lets_in(conninfo)
    return False


def by_hand(conninfo: ConnInfo, selection: ServerSelection, directory: Path | None, set_id: str = "") -> str:
    """Return how a superuser reverts the changes that may keep everybody out; "" where there are none."""

    def keeping_out(changes: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
        return _keeping_out(selection(changes), of_system=False)

    for server in known_servers(conninfo, keeping_out, directory, set_id):
        statements = restoring_sql(keeping_out(read(path_for(server.name.key, directory)).in_force))
        return f"as a superuser, in PGOPTIONS='{OPTIONS}' psql, not through a pooler: {statements}"
    return ""


def _keeping_out(changes: Sequence[ParameterChange], *, of_system: bool) -> tuple[ParameterChange, ...]:
    return tuple(
        change
        for change in changes
        if can_keep_out(change.name, change.value) and (change.scope.is_system or not of_system)
    )


def _postmaster(server: KnownServer) -> int | None:
    """Return the process that holds the data directory, where it is surely its server: the file that names it may be
    old.

    Raises:
        OSError: We may not look.
    """
    data = Path(server.server_place.data_directory)
    pid = pid_of(data)
    if pid is None:
        return None
    with directory_at(data) as directory:
        owner = directory.uid
    process = Path(f"/proc/{pid}")
    return pid if process.stat().st_uid == owner and (process / "cwd").samefile(data) else None


def _lets_in(conninfo: ConnInfo) -> bool:
    for _ in _until_deadline():
        try:
            operator_session(conninfo, OwnSessions()).close()
        except ConnectionProblem:
            continue
        return True
    return False


def _until_deadline() -> Iterator[None]:
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(_POLL_S)
