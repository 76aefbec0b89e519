"""The place of a server and its start: found while it answers, written down for when it does not. Blocking."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import ClusterProblem, JournalProblem, ServerProblem
from pgtop_tune.changes.journal import Journal
from pgtop_tune.cluster import auto_conf
from pgtop_tune.cluster.postmaster import Postmaster, managed, postmaster_of, this_machine
from pgtop_tune.host.process_files import local_postmaster
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.postgres.log_language import LogLanguage, catalogue_paths, is_english, read_catalogue
from pgtop_tune.postgres.queries import OLDEST_MAJOR, sql
from pgtop_tune.process.mount_namespace import check_answers, directory_at, stat_of
from pgtop_tune.process.path_looks import NO_ANSWER

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_READ: Final = ("data_directory", "config_file", "logging_collector", "log_directory", "log_line_prefix", "lc_messages")
_OF_MESSAGES: Final = ("LC_ALL", "LC_MESSAGES", "LANG")
"""The server's language until it has read lc_messages."""
ELSEWHERE: Final = f"{auto_conf.FILE_NAME} is managed elsewhere: change the value there"
"""The remedy where the server cannot write it."""
_COPY: Final = ".auto.conf"
_MAY_ASK: Final = "SELECT has_function_privilege('pg_config()', 'execute') AS permitted"
_PG_CONFIG: Final = "SELECT setting FROM pg_config() WHERE name = %s"
_AUTO_CONF_TEXT: Final = "SELECT pg_read_file(%s, 0, 1048576, true) AS content"
_INCLUDE: Final = re.compile(r"^\s*include(_if_exists|_dir)?\b.*", re.MULTILINE | re.IGNORECASE)


def postmaster_pid(session: OperatorSession) -> int | Unavailable:
    """Return the postmaster behind a session, where it is a process of this machine."""
    row = session.rows(sql("own_backend", OLDEST_MAJOR))[0]
    return local_postmaster(row["pid"], row["backend_start_ms"])


def find_place(session: OperatorSession) -> ServerPlace:
    """Return the place of a session's server; `why_not` says why its restart is not ours to run."""
    of = {parameter.name: parameter.setting for parameter in session.parameters(_READ)}
    data = of.get("data_directory", "")
    pid = postmaster_pid(session)
    if isinstance(pid, Unavailable):
        return ServerPlace(session.endpoint, data, "another machine", why_not=pid.detail)
    if not data:
        return ServerPlace(session.endpoint, data, "unknown", why_not="this role may not see its data_directory")
    try:
        server = postmaster_of(pid)
    except OSError as error:
        return ServerPlace(session.endpoint, data, "unknown", why_not=f"its process is hidden: {error.strerror}")
    me = this_machine()
    data = _real_path(pid, data)
    how = managed(server, data, of.get("config_file", ""), me)
    logs = Path(data) / of.get("log_directory", "") if of.get("logging_collector") == "on" else ""
    return ServerPlace(
        endpoint=session.endpoint,
        data_directory=data,
        managed=how.description,
        command=how.command,
        restart=how.restart,
        start=how.start,
        why_not=how.why_not,
        uid=server.uid,
        gid=server.gid,
        as_owner=how.as_owner,
        environment=server.environment,
        log_file=how.log_file or server.stderr_file,
        log_directory=str(logs),
        unit=how.unit,
        program=server.program,
        arguments=server.arguments,
        config_file=of.get("config_file", ""),
        catalogues=_catalogues(session, (of.get("lc_messages", ""), *_languages_of(server))),
        line_prefix=of.get("log_line_prefix", ""),
    )


def _languages_of(server: Postmaster) -> list[str]:
    return [value for name, value in server.environment if name in _OF_MESSAGES]


def _catalogues(session: OperatorSession, languages: Sequence[str]) -> tuple[str, ...]:
    foreign = dict.fromkeys(language for language in languages if not is_english(language))
    if not foreign:
        return ()
    directory = told_by_pg_config(session, "LOCALEDIR")
    paths = (path for language in foreign for path in catalogue_paths(directory, language, session.major))
    return tuple(dict.fromkeys(paths))


def told_by_pg_config(session: OperatorSession, name: str) -> str:
    """Return what pg_config says of the installation; "" where this role may not ask."""
    if not session.rows(_MAY_ASK)[0]["permitted"]:
        return ""
    return str(session.rows(_PG_CONFIG, name)[0]["setting"])


def language_of(server: ServerPlace) -> LogLanguage:
    """Return the language of a server's log, as far as its message catalogues can be read."""
    translations = []
    for path in server.catalogues:
        directory, _, name = path.rpartition("/")
        with suppress(OSError, ValueError), directory_at(directory) as catalogues:
            translations.append(read_catalogue(catalogues.read(name)))
    return LogLanguage(*translations, line_prefix=server.line_prefix)


def _real_path(pid: int, data_directory: str) -> str:
    """Return where a data directory really is: a link of the server's account on the way could lead root elsewhere.

    Args:
        pid: Its postmaster, which works in it (miscinit.c, ChangeToDataDir).
        data_directory: By the name that the server has for it.
    """
    try:
        named = stat_of(data_directory)
        working = os.stat(f"/proc/{pid}/cwd")
        return os.readlink(f"/proc/{pid}/cwd") if os.path.samestat(working, named) else data_directory
    except OSError:
        return data_directory


def check_auto_conf(session: OperatorSession, server_place: ServerPlace, tell: Callable[[str], None]) -> None:
    """Make sure that postgresql.auto.conf is the server's to write, and that ALTER SYSTEM keeps all of its lines.

    It writes out the lines that an include brings, and drops the include (guc.c, AlterSystemSetConfigFile).

    Args:
        session: To the server.
        server_place: The place of the server.
        tell: Takes that the file cannot be read.

    Raises:
        ServerProblem: It is not; nothing was changed.
    """
    text = None
    if server_place.uid is not None:
        check_directory(server_place.data_directory, "nothing was changed")
    if server_place.program:
        with suppress(ClusterProblem):
            if not auto_conf.is_writable(server_place.data_directory):
                raise ServerProblem(f"{auto_conf.FILE_NAME} is read-only, or a link: nothing was changed", ELSEWHERE)
            text = auto_conf.read(server_place.data_directory)
    if text is None:
        text = _text_over_sql(session)
    if text is None:
        tell(f"{auto_conf.FILE_NAME} cannot be read: ALTER SYSTEM would write out the settings of included files")
        return
    included = _INCLUDE.search(text)
    if included is not None:
        raise ServerProblem(
            f"{auto_conf.FILE_NAME} includes a file ({included[0].strip()}): ALTER SYSTEM would write out its lines",
            "move that line into postgresql.conf; nothing was changed",
        )


def check_directory(data_directory: str, consequence: str) -> None:
    """Make sure that the data directory of a server of this machine answers: its backends would hang likewise.

    Raises:
        ServerProblem: It does not; the message has the consequence.
    """
    try:
        check_answers(data_directory or "/")
    except TimeoutError:
        raise ServerProblem(
            f"{data_directory} {NO_ANSWER}: {consequence}", "try again when its file system answers"
        ) from None


def included_line(session: OperatorSession) -> str:
    """Return the line of postgresql.auto.conf that includes a file; "" where there is none, or it cannot be read."""
    included = _INCLUDE.search(_text_over_sql(session) or "")
    return "" if included is None else included[0].strip()


def _text_over_sql(session: OperatorSession) -> str | None:
    rows = session.try_rows(_AUTO_CONF_TEXT, auto_conf.FILE_NAME)
    return None if rows is None else str(rows[0]["content"] or "")


def note_place(server_place: ServerPlace, journal: Journal) -> None:
    """Write the place of a server into its journal, with a copy of postgresql.auto.conf, where either is news.

    Called before anything is written into that file, so that the way back is known when the server is down. The copy is
    what the file was before the first of the changes in force: while there are any it stays.

    Raises:
        JournalProblem: One of them could not be written; nothing is to be changed.
    """
    text = journal.text()
    known_place = text.server_place
    copy = known_place.copy if known_place is not None else ""
    if not any(change.scope.is_system for change in text.in_force):
        copy = _copied(server_place, journal.path)
    endpoints = (*known_place.earlier, known_place.endpoint) if known_place is not None else ()
    earlier = tuple(dict.fromkeys(endpoint for endpoint in endpoints if endpoint != server_place.endpoint))
    server_place = replace(server_place, copy=copy, earlier=earlier)
    if server_place != known_place:
        journal.write(server_place)


def _copied(server_place: ServerPlace, journal: Path) -> str:
    """Return the file that holds the copy, "" where the original cannot be read, and so not be repaired either."""
    try:
        content = auto_conf.read(server_place.data_directory)
    except ClusterProblem:
        return ""
    copy = journal.with_suffix(_COPY)
    try:
        auto_conf.write_copy(copy, content)
    except OSError as error:
        raise JournalProblem(f"{copy} cannot be written: {error.strerror}", "nothing was changed") from None
    return str(copy)
