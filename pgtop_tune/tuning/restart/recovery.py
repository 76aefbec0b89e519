"""A server that is down through a change of ours: found by the journal, mended, started. Blocking."""

from __future__ import annotations

import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from pgtop_tune.cluster.auto_conf import FILE_NAME
from pgtop_tune.cluster.postmaster import pid_of
from pgtop_tune.cluster.recorded_place import check_recorded
from pgtop_tune.cluster.service import run
from pgtop_tune.cluster.start_log import StartLog
from pgtop_tune.errors import ClusterProblem, JournalProblem
from pgtop_tune.journal import Journal, JournalText, ServerName, journals, read
from pgtop_tune.model.server_place import ServerPlace
from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.reverting import Choice
from pgtop_tune.tuning.restart.offline import restore
from pgtop_tune.tuning.restart.words import explaining

_SETTLED_S: Final = 60.0
"""A process that holds the data directory is starting or ending: so long it may take."""
_POLL_S: Final = 0.1


def recover(
    conninfo: ConnInfo,
    choice: Choice,
    directory: Path | None,
    tell: Callable[[str], None],
    written: Callable[[frozenset[str]], None] = lambda ids: None,
) -> bool:
    """Starts a server that does not run with the values it had before some changes.

    Only where one of them takes a restart: a server that was stopped for another reason stays as it is. The journal
    is not touched; taking the changes back when the server is there finds them taken back.

    Args:
        conninfo: The server, which does not answer.
        choice: Which of the changes in force.
        directory: Of the journals; paths.journal_dir() by default.
        tell: Told what is done.
        written: Told the ids of the changes whose old values were written.

    Returns:
        Whether the server was started, or was found starting.

    Raises:
        ClusterProblem: It cannot be mended or started from here; the hint is what to do.
    """
    found = [
        text
        for path in journals(directory)
        if (text := _readable(path)).place is not None
        and text.server is not None
        and any(change.restart for change in choice(text.in_force))
    ]
    spelled = {f"{each.host}:{each.port}" for each in conninfo.endpoints}
    ours = [text for text in found if text.place is not None and text.place.endpoint in spelled]
    # The same server was perhaps named otherwise when it was changed; which one it is has to be sure.
    ours = ours or [text for text in found if text.place is not None and _is_same_way(text.place.endpoint, conninfo)]
    if len({text.place.data_directory for text in ours if text.place is not None}) != 1:
        return False
    newest = max(ours, key=lambda text: max(change.at_ms for change in text.in_force))
    assert newest.server is not None
    return _recovered(newest, newest.server, choice, directory, tell, written)


def _readable(path: Path) -> JournalText:
    """What a journal says; nothing where it is not to be used, which `revert` tells."""
    try:
        return read(path)
    except JournalProblem:
        return JournalText(None, (), ())


def _is_same_way(endpoint: str, conninfo: ConnInfo) -> bool:
    """Whether an endpoint and one of a connection's lead to the same port of this machine."""
    host, _, port = endpoint.rpartition(":")
    return _is_here(host) and any(_is_here(each.host) and str(each.port) == port for each in conninfo.endpoints)


def _is_here(host: str) -> bool:
    if host == "localhost" or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _recovered(
    text: JournalText,
    name: ServerName,
    choice: Choice,
    directory: Path | None,
    tell: Callable[[str], None],
    written: Callable[[frozenset[str]], None],
) -> bool:
    place = text.place
    assert place is not None
    data = Path(place.data_directory)
    try:
        check_recorded(place)
        if _settled(data):
            return True
        with Journal(name, directory) as journal:
            chosen = choice(journal.text().in_force)
            changed = restore(place, chosen)
    except PermissionError:
        raise ClusterProblem(
            f"the server is down, and only root or its user may look into {data}", "run this command as one of them"
        ) from None
    if changed:
        written(frozenset(change.id for change in chosen))
        tell(f"the server is down: the old values are back in {data / FILE_NAME}")
    if not place.start:
        by_hand = f": {place.command}" if place.command else ""
        raise ClusterProblem("the server is down, and it is not ours to start", f"start it{by_hand}, then revert again")
    tell("starting it")
    _start(place)
    return True


def _settled(data: Path) -> bool:
    """Waits while a process of the server starts or ends; whether one is there in the end."""
    deadline = time.monotonic() + _SETTLED_S
    while pid_of(data) is not None:
        if _ready(data) or time.monotonic() > deadline:
            return True
        time.sleep(_POLL_S)
    return False


def _ready(data: Path) -> bool:
    """postmaster.pid says so in its last line (src/include/utils/pidfile.h)."""
    lines = (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1].strip() in ("ready", "standby") if lines else False


def _start(place: ServerPlace) -> None:
    log = StartLog(place, time.time())
    ran = run(place.start, place, as_owner=place.as_owner)
    if ran.status != 0:
        words = "\n".join(explaining(log.pieces(), ran.words))
        raise ClusterProblem(f"the server does not start with its old values either:\n{words}")
