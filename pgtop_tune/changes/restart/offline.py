"""A server that is down: why it did not start, and the old values restored in its postgresql.auto.conf. Blocking."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.paths import NotOurs, read_own
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.changes.server.markers import is_marker, marker_name
from pgtop_tune.changes.server.one_change import is_ours
from pgtop_tune.changes.statements import is_same_value, out_of_order
from pgtop_tune.cluster import auto_conf
from pgtop_tune.cluster.service import LogPiece
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.postgres.log_entries import LogEntry, log_entries
from pgtop_tune.postgres.log_language import ENGLISH, LogLanguage


def restore(server_place: ServerPlace, changes: Sequence[ParameterChange]) -> bool:
    """Give postgresql.auto.conf the values back that it had before some changes; safe to be done again.

    Args:
        server_place: Of the server, which does not run.
        changes: In force, in the order they were made.

    Returns:
        Whether the file is another than before.

    Raises:
        ClusterProblem: It cannot be read or written.
    """
    now = auto_conf.read(server_place.data_directory)
    text = put_back(now, changes)
    copy = _copy(server_place)
    if copy is not None and _lines(copy) == _lines(text):
        # It says the same, and has the comments that ALTER SYSTEM drops.
        text = copy
    if text == now:
        return False
    auto_conf.write(server_place.data_directory, text)
    return True


def in_file(server_place: ServerPlace, changes: Sequence[ParameterChange]) -> tuple[ParameterChange, ...]:
    """Remove the markers of changes that `restore` has put back, and return the changes as the journal gets them.

    Args:
        server_place: Of the server, which does not run.
        changes: Of the system's scope; no other change of these parameters is in force.

    Raises:
        ClusterProblem: The file cannot be read or written.
    """
    text = now = auto_conf.read(server_place.data_directory)
    for change in changes:
        text = auto_conf.with_line(text, marker_name(change.name), None)
    if text != now:
        auto_conf.write(server_place.data_directory, text)
    values = _by_name(text)
    return tuple(_as_in_file(change, values.get(change.name.lower())) for change in reversed(changes))


def _as_in_file(change: ParameterChange, value: str | None) -> ParameterChange:
    if is_same_value(change.name, value, change.auto_conf_before):
        message, state = "the server was down: it starts with this value", ChangeState.REVERTED
        return replace(change, state=state, shown_after=change.shown_before, message=message)
    since = "left alone: reset since" if value is None else f"left alone: another user has set it to {value} since"
    return replace(change, state=ChangeState.SUPERSEDED, message=since, displaced=change.kept)


def restore_copy(
    server_place: ServerPlace,
    changes: Sequence[ParameterChange],
    in_force: Sequence[ParameterChange],
    sure: Callable[[str], bool],
) -> bool:
    """Put the copy of postgresql.auto.conf back where `restore` did not bring the server up; lines of others stay.

    Args:
        server_place: Of the server, which does not run.
        changes: To be taken back.
        in_force: All of the journal.
        sure: Asked where lines that would go are not as we have left them; told which, and of what file.

    Returns:
        Whether the file is another than before.

    Raises:
        ClusterProblem: A file cannot be read or written.
    """
    copy = _copy(server_place)
    if copy is None:
        return False
    now = auto_conf.read(server_place.data_directory)
    current, before = _by_name(now), _by_name(copy)
    own_names = {change.name.lower() for change in changes if change.scope.is_system}
    text = copy
    for name in dict.fromkeys((*before, *current)):
        if name not in own_names and current.get(name) != before.get(name):
            text = auto_conf.with_line(text, name, current.get(name))
    foreign_names = [
        name
        for name in sorted(own_names & current.keys())
        if current[name] != before.get(name) and not _left_by_one(in_force, name, current[name])
    ]
    if text == now or (
        foreign_names and not sure(f"{', '.join(foreign_names)} in {server_place.data_directory}/{auto_conf.FILE_NAME}")
    ):
        return False
    auto_conf.write(server_place.data_directory, text)
    return True


def put_back(text: str, changes: Sequence[ParameterChange]) -> str:
    """Return the text without some changes, last first; values that another user has set since stay. Pure."""
    for change in reversed(changes):
        if not change.scope.is_system:
            continue
        now, before = _by_name(text).get(change.name.lower()), change.auto_conf_before
        if is_ours(change, now) and not is_same_value(change.name, now, before):
            text = auto_conf.with_line(text, change.name, before)
        elif not is_same_value(change.name, now, before):
            continue
        text = _in_order_again(text, change)
    return text


def _in_order_again(text: str, change: ParameterChange) -> str:
    have = list(auto_conf.settings(text))
    own_line = () if change.auto_conf_before is None else (change.name,)
    # Programs that know no markers have written down their lines as well.
    wanted_order = [name for name in (*own_line, *change.followed_by) if name in have and not is_marker(name)]
    return auto_conf.at_the_end(text, out_of_order([name for name in have if name in wanted_order], wanted_order))


def _by_name(text: str) -> dict[str, str]:
    return {name.lower(): value for name, value in auto_conf.settings(text).items()}


def _left_by_one(changes: Sequence[ParameterChange], name: str, value: str) -> bool:
    return any(change.name.lower() == name and is_ours(change, value) for change in changes)


def _lines(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in auto_conf.settings(text).items() if not is_marker(name)]


def _copy(server_place: ServerPlace) -> str | None:
    if not server_place.copy:
        return None
    try:
        return read_own(Path(server_place.copy)).decode("utf-8", "surrogateescape")
    except NotOurs as why:
        raise ClusterProblem(f"the copy is not used: {why}", why.hint) from None
    except OSError as error:
        raise ClusterProblem(f"{server_place.copy} cannot be read: {error.strerror}") from None


# The reasons in the log of a start that failed. Pure.

_LOG_LINES: Final = 12
_ENDED: Final = re.compile("database system is shut down")
_GRAVE: Final = frozenset({"WARNING", "ERROR", "FATAL", "PANIC"})
_SUMMARY: Final = re.compile(r"contains errors|^could not (?:load|create any)")
"""Messages of a server after it has logged each fault of a file or an address (guc.c, postmaster.c)."""
_BEGIN: Final = re.compile(r"^(?:starting (?:PostgreSQL|%s)|listening on)")
_OF_PROGRAM: Final = re.compile(r"^(?:\S*/)?postgres: (.+)$", re.MULTILINE)
"""Messages of a server before it has a log: with neither prefix nor severity (postmaster.c, write_stderr)."""


def explaining(
    pieces: Sequence[LogPiece], printed: Sequence[str] = (), language: LogLanguage = ENGLISH
) -> tuple[str, ...]:
    """Return the lines of a log that explain why a server did not start, graver ones alone where there are any.

    Args:
        pieces: The server's log of the start.
        printed: Output of the program that started it; used where the log has nothing.
        language: Of the log.
    """
    ended = language.saying(_ENDED)
    entries: list[LogEntry] = []
    for piece in pieces:
        entries += _since_the_end(log_entries(piece.file, piece.content, language).entries, ended)
    grave = _with_causes(entries, language)
    lines = [message for piece in pieces for message in _of_program(piece.content, ended)]
    lines += [f"{entry.severity}:  {entry.message}" for entry in (grave or ([] if lines else entries))]
    return tuple(dict.fromkeys(lines))[-_LOG_LINES:] or tuple(printed)[-_LOG_LINES:]


def _with_causes(entries: Sequence[LogEntry], language: LogLanguage) -> list[LogEntry]:
    """Return the graver lines, each summary of faults with the lines of those faults before it."""
    summary, begin = language.saying(_SUMMARY), language.saying(_BEGIN)
    kept: list[LogEntry] = []
    for at, entry in enumerate(entries):
        if entry.severity in _GRAVE:
            if summary.search(entry.message):
                before = entries[max(at - _LOG_LINES, 0) : at]
                kept += [fault for fault in before if fault.severity == "LOG" and not begin.search(fault.message)]
            kept.append(entry)
    return kept


def _of_program(content: bytes, ended: re.Pattern[str]) -> list[str]:
    since = ended.split(content.decode("utf-8", "replace"))[-1]
    return [f"FATAL:  {without_secrets(message)}" for message in _OF_PROGRAM.findall(since)]


def _since_the_end(entries: Sequence[LogEntry], ended: re.Pattern[str]) -> Sequence[LogEntry]:
    """Return the entries after the end of the server before; one that does not start reports its own end, too."""
    last = next((at for at, entry in enumerate(entries) if ended.match(entry.message)), -1)
    return entries[last + 1 :]


def values(changes: Sequence[ParameterChange]) -> str:
    """ "shared_buffers = 1GB, max_connections = 200": as they are shown now. Foreign text."""
    return ", ".join(f"{change.name} = {change.shown_after}" for change in changes)
