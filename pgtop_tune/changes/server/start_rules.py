"""Values that a reload accepts and the next start refuses: a row for each rule of the server's start. Blocking.

A reload checks each value by itself; a start checks what several values and the machine's files come to. The file as it
is is judged first, and only what a change adds refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pgtop_tune.changes.model.change import ScopeKind, WantedParameter
from pgtop_tune.errors import ServerProblem, UsageProblem
from pgtop_tune.model.parameter_values import check_value, parse, parse_bool
from pgtop_tune.model.postgres import Parameter

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_FILE: Final = "SELECT isdir AS is_directory FROM pg_stat_file(%s, true)"
_VALUES: Final = """
SELECT s.name, s.unit, s.vartype, coalesce(f.setting, s.setting) AS now
  FROM pg_settings s
  LEFT JOIN LATERAL (SELECT setting FROM pg_file_settings
                      WHERE lower(name) = lower(s.name) AND error IS NULL ORDER BY seqno DESC LIMIT 1) f ON true
 WHERE s.name = ANY(%s)
"""
"""What the next start reads; where the role may not look into the files, what is in force."""
_IN_FORCE: Final = "SELECT name, unit, vartype, setting AS now FROM pg_settings WHERE name = ANY(%s)"
_BYTES: Final = {"B": 1, "kB": 2**10, "8kB": 2**13, "16kB": 2**14, "32kB": 2**15, "MB": 2**20}
_VERSIONS: Final = ("", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")


class _Row(Struct, frozen=True):
    """A parameter: unit and kind as pg_settings has them, and the value that the next start reads."""

    unit: str
    vartype: str
    now: str


class _Start:
    """The values and files of the next start.

    Args:
        session: To the server.
        rows: Parameters by name.
        wanted: Values to be written, by name in lower case; they replace those of the rows.
    """

    def __init__(self, session: OperatorSession, rows: Mapping[str, _Row], wanted: Mapping[str, str]) -> None:
        self._session: Final = session
        self._rows: Final = rows
        self._wanted: Final = wanted

    def text(self, name: str) -> str:
        """Return a value, "" for an unknown parameter."""
        row = self._rows.get(name)
        return self._wanted.get(name, "" if row is None else row.now).strip()

    def number(self, name: str) -> float | None:
        """Return a number, in bytes where it is a size; None where there is none."""
        row = self._rows.get(name)
        if row is None:
            return None
        try:
            return parse(self.text(name), row.unit, integer=True) * _BYTES.get(row.unit, 1)
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
        try:
            with self._session.plain_words():
                rows = self._session.rows(_FILE, path)
        except ServerProblem:
            # The role may not look, or the server may not: then nothing is refused.
            return False
        return not rows or rows[0]["is_directory"] is None or bool(rows[0]["is_directory"]) is not directory


class StartRule(Struct, frozen=True, kw_only=True):
    """A rule of the server's start.

    Attributes:
        names: Parameters that it is about.
        refusal: What the server writes where it does not start; "" where it does.
        source: File of the server with the rule.
    """

    names: tuple[str, ...]
    refusal: Callable[[_Start], str]
    source: str


def _twice_a_segment(name: str) -> Callable[[_Start], str]:
    def refusal(start: _Start) -> str:
        segment, size = start.number("wal_segment_size"), start.number(name)
        too_small = segment is not None and size is not None and size // 2**20 < 2 * (segment // 2**20)
        return f'"{name}" must be at least twice "wal_segment_size"' if too_small else ""

    return refusal


def _reserved(start: _Start) -> str:
    most, of_superusers = start.number("max_connections"), start.number("superuser_reserved_connections")
    reserved = start.number("reserved_connections")
    if most is None or of_superusers is None or of_superusers + (reserved or 0) < most:
        return ""
    names = f'"superuser_reserved_connections" ({of_superusers:.0f})'
    if reserved is not None:
        names += f' plus "reserved_connections" ({reserved:.0f})'
    return f'{names} must be less than "max_connections" ({most:.0f})'


def _minimal_wal(start: _Start) -> str:
    if start.text("wal_level").lower() != "minimal":
        return ""
    if start.text("archive_mode").lower() not in ("off", "", "false", "no", "0"):
        return 'WAL archival cannot be enabled when "wal_level" is "minimal"'
    if (start.number("max_wal_senders") or 0) > 0:
        return 'WAL streaming ("max_wal_senders" > 0) requires "wal_level" to be "replica" or "logical"'
    return 'WAL cannot be summarized when "wal_level" is "minimal"' if start.is_on("summarize_wal") else ""


def _file_of_tls(name: str, what: str, *, directory: bool = False) -> Callable[[_Start], str]:
    def refusal(start: _Start) -> str:
        path = start.text(name)
        needed = start.is_on("ssl") and path != ""
        missing = needed and start.is_missing(path, directory=directory)
        return f'could not load {what} "{path}": No such file or directory' if missing else ""

    return refusal


def _tls_versions(start: _Start) -> str:
    least, most = start.text("ssl_min_protocol_version"), start.text("ssl_max_protocol_version")
    if not start.is_on("ssl") or most == "" or least not in _VERSIONS or most not in _VERSIONS:
        return ""
    wrong = _VERSIONS.index(least) > _VERSIONS.index(most)
    return 'could not set SSL protocol version range: "ssl_min_protocol_version" cannot be higher' if wrong else ""


def _log_directory(start: _Start) -> str:
    directory = start.text("log_directory")
    if not start.is_on("logging_collector") or not start.is_missing(directory, directory=True):
        return ""
    # The server makes the directory itself, and none above it (syslogger.c).
    above = str(PurePosixPath(directory).parent)
    if not start.is_missing(directory) or (above not in (".", "/") and start.is_missing(above, directory=True)):
        return f'could not open log file in "{directory}": No such file or directory'
    return ""


RULES: Final[tuple[StartRule, ...]] = (
    *(
        StartRule(names=(name,), refusal=_twice_a_segment(name), source="xlog.c (ReadControlFile)")
        for name in ("min_wal_size", "max_wal_size")
    ),
    StartRule(
        names=("max_connections", "superuser_reserved_connections", "reserved_connections"),
        refusal=_reserved,
        source="postmaster.c (PostmasterMain)",
    ),
    StartRule(
        names=("wal_level", "archive_mode", "max_wal_senders", "summarize_wal"),
        refusal=_minimal_wal,
        source="postmaster.c (PostmasterMain)",
    ),
    *(
        StartRule(names=("ssl", name), refusal=_file_of_tls(name, what), source="be-secure-openssl.c (be_tls_init)")
        for name, what in (
            ("ssl_cert_file", "server certificate file"),
            ("ssl_key_file", "private key file"),
            ("ssl_ca_file", "root certificate file"),
            ("ssl_crl_file", "SSL certificate revocation list file"),
            ("ssl_dh_params_file", "DH parameters file"),
        )
    ),
    StartRule(
        names=("ssl", "ssl_crl_dir"),
        refusal=_file_of_tls("ssl_crl_dir", "SSL certificate revocation list directory", directory=True),
        source="be-secure-openssl.c (be_tls_init)",
    ),
    StartRule(
        names=("ssl", "ssl_min_protocol_version", "ssl_max_protocol_version"),
        refusal=_tls_versions,
        source="be-secure-openssl.c (be_tls_init)",
    ),
    StartRule(
        names=("log_directory", "logging_collector"), refusal=_log_directory, source="syslogger.c (SysLogger_Start)"
    ),
)
"""Of 14 to 19."""


def check_starts(session: OperatorSession, wanted: Sequence[WantedParameter], current: Mapping[str, Parameter]) -> None:
    """Make sure that a server starts with values that a reload would accept; resets are judged by the default.

    Args:
        session: To the server.
        wanted: The changes of a set; what the server refuses by itself is left to its words.
        current: The parameters as they are, by name in lower case.

    Raises:
        ServerProblem: It would not start; nothing was changed.
    """
    texts = {
        each.name.lower(): each.value
        for each in wanted
        if each.value is not None and each.scope.kind is ScopeKind.SYSTEM and _is_taken(each, current)
    }
    rules = [rule for rule in RULES if not texts.keys().isdisjoint(rule.names)]
    if not rules:
        return
    names = list(dict.fromkeys(("wal_segment_size", "ssl", *(name for rule in rules for name in rule.names))))
    try:
        with session.plain_words():
            found = session.rows(_VALUES, names)
    except ServerProblem:
        found = session.rows(_IN_FORCE, names)
    rows = {
        row["name"]: _Row(unit=row["unit"] or "", vartype=row["vartype"], now=str(row["now"] or "")) for row in found
    }
    before, after = _Start(session, rows, {}), _Start(session, rows, texts)
    for rule in rules:
        refusal = rule.refusal(after)
        if refusal and not rule.refusal(before):
            raise ServerProblem(
                f"the server would not start again: {refusal}", "choose another value; nothing was changed"
            )


def _is_taken(wanted: WantedParameter, current: Mapping[str, Parameter]) -> bool:
    parameter = current.get(wanted.name.lower())
    try:
        if parameter is not None and wanted.value is not None:
            check_value(parameter, wanted.value)
    except UsageProblem:
        return False
    return parameter is not None
