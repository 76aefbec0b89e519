"""The next start of a server: the values and files that it reads, and whatever else decides it. Blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ServerProblem, UsageProblem
from pgtop_tune.changes.model.change import WantedParameter
from pgtop_tune.changes.model.change_set import PendingParameter
from pgtop_tune.changes.statements import elements
from pgtop_tune.model.parameter_values import parse, parse_bool, unit_bytes
from pgtop_tune.model.postgres import Parameter

# Values of parameters after a restart: requested now, written already, or unchanged. Pure.

AT_START: Final = frozenset({"command line", "environment variable"})
"""Sources that win over every file, also after a restart; pending_restart is shown all the same (guc.c)."""


class ValuesAfter(Struct, frozen=True):
    """Values after a restart.

    Attributes:
        now: Parameters as they are, by name.
        texts: Values that will be others, by name, as typed or written.
    """

    now: Mapping[str, Parameter]
    texts: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return the value after the restart; None for a parameter that the server does not have."""
        if name in self.texts:
            return self.texts[name]
        return self.now[name].shown if name in self.now else None

    def number(self, name: str) -> float | None:
        """Return the value after the restart in bytes, or in the parameter's unit where it is no size; None where
        unknown."""
        text = self.text(name)
        return None if text is None else self._number(name, text)

    def number_now(self, name: str) -> float | None:
        """Return the number now, in the same units."""
        return self._number(name, self.now[name].setting) if name in self.now else None

    def _number(self, name: str, text: str) -> float | None:
        parameter = self.now.get(name)
        if parameter is None:
            return None
        try:
            return parse(text, parameter.unit, integer=False) * unit_bytes(parameter.unit)
        except UsageProblem:
            return None


def values_after(
    now: Mapping[str, Parameter], pending: Sequence[PendingParameter], requested: Sequence[WantedParameter]
) -> ValuesAfter:
    """Return the values of parameters after a restart.

    Args:
        now: Parameters as they are, by name.
        pending: What waits already.
        requested: Changes about to be written; a RESET brings the server's own default back. A value that the server
            was started with wins over it.
    """
    texts = {parameter.name: parameter.after for parameter in pending if parameter.after}
    for request in requested:
        known_name = next((name for name in now if name.lower() == request.name.lower()), request.name)
        if known_name in now and now[known_name].source in AT_START:
            continue
        default = now[known_name].boot_val if known_name in now else None
        value = default if request.value is None else request.value
        if value is not None:
            texts[known_name] = value
    return ValuesAfter(now, texts)


if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_HBA: Final = "hba_file"
_TEXT: Final = "SELECT pg_read_file(%s, 0, 1048576, true) AS text"
_FILE: Final = "SELECT isdir AS is_directory FROM pg_stat_file(%s, true)"
_VALUES: Final = """
WITH lines AS MATERIALIZED (
  SELECT lower(name) AS name, setting, seqno,
         sourcefile = current_setting('data_directory') || '/postgresql.auto.conf' AS is_ours
    FROM pg_file_settings WHERE name IS NOT NULL)
SELECT s.name, s.unit, s.source, s.setting AS running,
       coalesce(CASE WHEN s.source NOT IN ('command line', 'environment variable') THEN
         (SELECT setting FROM lines WHERE name = lower(s.name) ORDER BY seqno DESC LIMIT 1) END, s.setting) AS now,
       coalesce((SELECT setting FROM lines WHERE name = lower(s.name) AND NOT is_ours ORDER BY seqno DESC LIMIT 1),
                s.boot_val) AS without
  FROM pg_settings s WHERE s.name = ANY(%s)
"""
"""Values that the next start reads, with and without the line of postgresql.auto.conf."""
_IN_FORCE: Final = """
SELECT name, unit, source, setting AS running, setting AS now, coalesce(reset_val, boot_val) AS without
  FROM pg_settings WHERE name = ANY(%s)
"""
"""The query for a role that may not look into the files."""
TLS_FILES: Final = {
    "ssl_cert_file": "server certificate file",
    "ssl_key_file": "private key file",
    "ssl_ca_file": "root certificate file",
    "ssl_crl_file": "SSL certificate revocation list file",
    "ssl_crl_dir": "SSL certificate revocation list directory",
    "ssl_dh_params_file": "DH parameters file",
}
"""Parameters that name files of TLS, relative to the data directory, and the server's names for these files."""
_COUNTS: Final = {
    "slots": "SELECT count(*) AS n FROM pg_replication_slots",
    "logical_slots": "SELECT count(*) AS n FROM pg_replication_slots WHERE slot_type = 'logical'",
    "origins": "SELECT count(*) AS n FROM pg_replication_origin_status",
    "prepared": "SELECT count(*) AS n FROM pg_prepared_xacts",
    "md5_lines": "SELECT count(*) AS n FROM pg_hba_file_rules WHERE auth_method = 'md5'",
}
"""Objects that the server keeps on its disk, and the lines of pg_hba.conf."""
_COUNTED_FOR: Final = {
    "wal_level": ("slots", "logical_slots"),
    "max_replication_slots": ("slots", "origins"),
    "max_active_replication_origins": ("origins",),
    "max_prepared_transactions": ("prepared",),
    "db_user_namespace": ("md5_lines",),
}
"""By the parameter whose change asks for it."""
PASSPHRASE: Final = "ssl_passphrase_command"
_OTHERS: Final = "wal_segment_size", PASSPHRASE


class StartValue(Struct, frozen=True):
    """A parameter.

    Attributes:
        unit: As pg_settings has it, "" without.
        running: The value in force.
        now: The value that the next start reads.
        without: The one that it reads without a line of postgresql.auto.conf.
        is_fixed: Given where the server is started: no file wins over it.
    """

    unit: str
    running: str
    now: str
    without: str
    is_fixed: bool


class NextStart(Struct, frozen=True):
    """The values and files of the next start.

    Attributes:
        rows: Parameters by name.
        changes: Values to be written, by name in lower case, None for a reset; they replace those of the rows.
        directories: Paths that were looked at, and whether each is a directory; None where nothing is there.
        counts: Numbers of objects by the names of `_COUNTS`; without those not asked for, or not permitted to be read.
        has_group: Whether the group of its sockets exists; None where that cannot be said.
        closed: Paths that its account surely cannot use, and why.
        cannot_listen: Why it could open no TCP port, "" where it could or that cannot be said.
        access_fault: Why it could not load its hba_file, likewise.
    """

    rows: Mapping[str, StartValue]
    changes: Mapping[str, str | None]
    directories: Mapping[str, bool | None]
    counts: Mapping[str, int]
    has_group: bool | None = None
    closed: Mapping[str, str] = {}
    cannot_listen: str = ""
    access_fault: str = ""

    def text(self, name: str) -> str:
        """Return a value, "" for an unknown parameter."""
        row = self.rows.get(name)
        if row is None:
            return ""
        value = row.now if row.is_fixed else self.changes.get(name, row.now)
        return (row.without if value is None else value).strip()

    def number(self, name: str) -> float | None:
        """Return a number, in bytes where it is a size; None where there is none."""
        row = self.rows.get(name)
        if row is None:
            return None
        try:
            return parse(self.text(name), row.unit, integer=True) * unit_bytes(row.unit)
        except UsageProblem:
            return None

    def is_on(self, name: str) -> bool:
        """Return whether a boolean, or an enum that knows off, is on."""
        try:
            return parse_bool(self.text(name)) == "on"
        except UsageProblem:
            return False

    def is_missing(self, path: str, *, directory: bool = False) -> bool:
        """Return whether there surely is no file, or directory, of a path; a relative one is in the data directory."""
        return path in self.directories and self.directories[path] is not directory

    def paths(self) -> tuple[str, ...]:
        """Return the paths that the start opens."""
        of_tls = [self.text(name) for name in TLS_FILES] if self.is_on("ssl") else []
        logs: tuple[str, ...] = ()
        if self.is_on("logging_collector"):
            directory, file = self.text("log_directory"), self.text("log_filename")
            logs = (directory, above(directory), above(f"{directory}/{file}"))
        other_paths = (self.text("hba_file"), self.text("stats_temp_directory"))
        return tuple(filter(None, (*of_tls, *logs, *other_paths, *self.socket_directories())))

    def socket_directories(self) -> tuple[str, ...]:
        """Return where its sockets are to be, but for abstract ones."""
        names = elements("unix_socket_directories", self.text("unix_socket_directories")) or ()
        return tuple(name for name in names if not name.startswith("@"))


def above(path: str) -> str:
    """Return the directory that a path is in; "" for the root and for the data directory."""
    directory = str(PurePosixPath(path).parent) if path else ""
    return directory if directory not in (".", "/") else ""


def next_start(
    session: OperatorSession,
    changes: Sequence[WantedParameter],
    parameters: Sequence[str],
    *,
    touched: frozenset[str] = frozenset(),
) -> NextStart:
    """Return the next start of the server with some changes of the system's scope.

    Args:
        session: To the server.
        changes: The changes.
        parameters: That are to be known.
        touched: Parameters whose rules are going to be asked, in lower case, besides those of the changes.
    """
    texts = {change.name.lower(): change.value for change in changes}
    touched = touched | texts.keys()
    names = list(dict.fromkeys((*_OTHERS, *parameters)))
    read = session.try_rows(_VALUES, names)
    rows = {
        row["name"]: StartValue(
            unit=row["unit"] or "",
            running=row["running"] or "",
            now=row["now"] or "",
            without=row["without"] or "",
            is_fixed=row["source"] in AT_START,
        )
        for row in (session.rows(_IN_FORCE, names) if read is None else read)
    }
    start = NextStart(rows=rows, changes=texts, directories={}, counts={})
    return replace(
        start,
        directories=_directories(session, start.paths()),
        counts=_counts(session, touched),
        access_fault=_access_fault(session, start.text(_HBA)) if _HBA in touched else "",
    )


def _access_fault(session: OperatorSession, path: str) -> str:
    """Return why the server could not load a file of access rules: it cannot read it, or there is no rule in it."""
    try:
        with session.plain_words():
            text = str(session.rows(_TEXT, path)[0]["text"] or "")
    except ServerProblem as problem:
        return problem.message if "could not open" in problem.message else ""
    has_rule = any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
    return "" if has_rule else "it contains no entries"


def _counts(session: OperatorSession, touched: frozenset[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in dict.fromkeys(count for parameter in touched for count in _COUNTED_FOR.get(parameter, ())):
        if rows := session.try_rows(_COUNTS[name]):
            counts[name] = rows[0]["n"]
    return counts


def _directories(session: OperatorSession, paths: Sequence[str]) -> dict[str, bool | None]:
    directories: dict[str, bool | None] = {}
    for path in dict.fromkeys(paths):
        # Where the role may not look, or the server may not, nothing is known.
        if (rows := session.try_rows(_FILE, path)) is not None:
            directories[path] = rows[0]["is_directory"] if rows else None
    return directories
