"""Values that a reload accepts and the next start refuses: a row for each rule of the server's start. Blocking.

A reload checks each value by itself; a start checks what several values and the machine's files come to. The file as it
is is judged first, and only what a change adds refuses it.
"""

from __future__ import annotations

import grp
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.changes.model.change import WantedParameter
from pgtop_tune.errors import ServerProblem, UsageProblem
from pgtop_tune.model.parameter_values import parse, parse_bool

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_FILE: Final = "SELECT isdir AS is_directory FROM pg_stat_file(%s, true)"
_VALUES: Final = """
WITH lines AS MATERIALIZED (
  SELECT lower(name) AS name, setting, seqno,
         sourcefile = current_setting('data_directory') || '/postgresql.auto.conf' AS is_ours
    FROM pg_file_settings WHERE name IS NOT NULL)
SELECT s.name, s.unit, s.vartype,
       coalesce(CASE WHEN s.source NOT IN ('command line', 'environment variable') THEN
         (SELECT setting FROM lines WHERE name = lower(s.name) ORDER BY seqno DESC LIMIT 1) END, s.setting) AS now,
       coalesce((SELECT setting FROM lines WHERE name = lower(s.name) AND NOT is_ours ORDER BY seqno DESC LIMIT 1),
                s.boot_val) AS without
  FROM pg_settings s WHERE s.name = ANY(%s)
"""
"""What the next start reads, and what it reads without the line of postgresql.auto.conf."""
_IN_FORCE: Final = """
SELECT name, unit, vartype, setting AS now, coalesce(reset_val, boot_val) AS without
  FROM pg_settings WHERE name = ANY(%s)
"""
"""The same where the role may not look into the files."""
_BYTES: Final = {"B": 1, "kB": 2**10, "8kB": 2**13, "16kB": 2**14, "32kB": 2**15, "MB": 2**20}
_VERSIONS: Final = ("", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
TLS_FILES: Final = {
    "ssl_cert_file": "server certificate file",
    "ssl_key_file": "private key file",
    "ssl_ca_file": "root certificate file",
    "ssl_crl_file": "SSL certificate revocation list file",
    "ssl_crl_dir": "SSL certificate revocation list directory",
    "ssl_dh_params_file": "DH parameters file",
}
"""Parameters that name files of TLS, relative to the data directory, and what the server calls these files."""
_PASSPHRASE: Final = "ssl_passphrase_command"


class _Row(Struct, frozen=True):
    """A parameter.

    Attributes:
        unit: As pg_settings has it, "" without.
        vartype: Its kind, likewise.
        now: The value that the next start reads.
        without: The one that it reads without a line of postgresql.auto.conf.
    """

    unit: str
    vartype: str
    now: str
    without: str


class NextStart(Struct, frozen=True):
    """The values and files of the next start.

    Attributes:
        rows: Parameters by name.
        wanted: Values to be written, by name in lower case, None for a reset; they replace those of the rows.
        directories: Paths that were looked at, and whether each is a directory; None where nothing is there.
        has_group: Whether the group of its sockets exists; None where that cannot be said.
    """

    rows: Mapping[str, _Row]
    wanted: Mapping[str, str | None]
    directories: Mapping[str, bool | None]
    has_group: bool | None = None

    def text(self, name: str) -> str:
        """Return a value, "" for an unknown parameter."""
        row = self.rows.get(name)
        if row is None:
            return ""
        value = self.wanted.get(name, row.now)
        return (row.without if value is None else value).strip()

    def number(self, name: str) -> float | None:
        """Return a number, in bytes where it is a size; None where there is none."""
        row = self.rows.get(name)
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
        return path in self.directories and self.directories[path] is not directory

    def paths(self) -> tuple[str, ...]:
        """Return the paths that the start opens."""
        of_tls = [self.text(name) for name in TLS_FILES] if self.is_on("ssl") else []
        directory = self.text("log_directory") if self.is_on("logging_collector") else ""
        return tuple(filter(None, (*of_tls, directory, _above(directory), self.text("hba_file"))))


class StartRule(Struct, frozen=True, kw_only=True):
    """A rule of the server's start.

    Attributes:
        names: Parameters that it is about.
        refusal: What the server writes where it does not start; "" where it does.
        source: File of the server with the rule.
        seen_since: Major version whose dry start sees it, too; None where none does.
    """

    names: tuple[str, ...]
    refusal: Callable[[NextStart], str]
    source: str
    seen_since: int | None = 15


def _above(directory: str) -> str:
    above = str(PurePosixPath(directory).parent) if directory else ""
    return above if above not in (".", "/") else ""


def _twice_a_segment(name: str) -> Callable[[NextStart], str]:
    def refusal(start: NextStart) -> str:
        segment, size = start.number("wal_segment_size"), start.number(name)
        too_small = segment is not None and size is not None and size // 2**20 < 2 * (segment // 2**20)
        return f'"{name}" must be at least twice "wal_segment_size"' if too_small else ""

    return refusal


def _reserved(start: NextStart) -> str:
    most, of_superusers = start.number("max_connections"), start.number("superuser_reserved_connections")
    reserved = start.number("reserved_connections")
    if most is None or of_superusers is None or of_superusers + (reserved or 0) < most:
        return ""
    names = f'"superuser_reserved_connections" ({of_superusers:.0f})'
    if reserved is not None:
        names += f' plus "reserved_connections" ({reserved:.0f})'
    return f'{names} must be less than "max_connections" ({most:.0f})'


def _minimal_wal(start: NextStart) -> str:
    if start.text("wal_level").lower() != "minimal":
        return ""
    if start.text("archive_mode").lower() not in ("off", "", "false", "no", "0"):
        return 'WAL archival cannot be enabled when "wal_level" is "minimal"'
    if (start.number("max_wal_senders") or 0) > 0:
        return 'WAL streaming ("max_wal_senders" > 0) requires "wal_level" to be "replica" or "logical"'
    return 'WAL cannot be summarized when "wal_level" is "minimal"' if start.is_on("summarize_wal") else ""


def _file_of_tls(name: str, what: str, *, directory: bool = False) -> Callable[[NextStart], str]:
    def refusal(start: NextStart) -> str:
        path = start.text(name)
        needed = start.is_on("ssl") and path != ""
        missing = needed and start.is_missing(path, directory=directory)
        return f'could not load {what} "{path}": No such file or directory' if missing else ""

    return refusal


def _tls_versions(start: NextStart) -> str:
    least, most = start.text("ssl_min_protocol_version"), start.text("ssl_max_protocol_version")
    if not start.is_on("ssl") or most == "" or least not in _VERSIONS or most not in _VERSIONS:
        return ""
    wrong = _VERSIONS.index(least) > _VERSIONS.index(most)
    return 'could not set SSL protocol version range: "ssl_min_protocol_version" cannot be higher' if wrong else ""


def _access_file(start: NextStart) -> str:
    path = start.text("hba_file")
    # A relative one is looked for where the server is started, which nobody knows.
    is_missing = path.startswith("/") and start.is_missing(path)
    return f'could not load "{path}": No such file or directory' if is_missing else ""


def _group(start: NextStart) -> str:
    group = start.text("unix_socket_group")
    return f'group "{group}" does not exist' if start.has_group is False else ""


def _log_directory(start: NextStart) -> str:
    directory = start.text("log_directory")
    if not start.is_on("logging_collector") or not start.is_missing(directory, directory=True):
        return ""
    # The server makes the directory itself, and none above it (syslogger.c).
    if not start.is_missing(directory) or start.is_missing(_above(directory), directory=True):
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
        StartRule(
            names=("ssl", name),
            refusal=_file_of_tls(name, what, directory=name.endswith("_dir")),
            source="be-secure-openssl.c (be_tls_init)",
        )
        for name, what in TLS_FILES.items()
    ),
    StartRule(
        names=("ssl", "ssl_min_protocol_version", "ssl_max_protocol_version"),
        refusal=_tls_versions,
        source="be-secure-openssl.c (be_tls_init)",
    ),
    StartRule(
        names=("log_directory", "logging_collector"),
        refusal=_log_directory,
        source="syslogger.c (SysLogger_Start)",
        seen_since=None,
    ),
    StartRule(names=("hba_file",), refusal=_access_file, source="postmaster.c (PostmasterMain)", seen_since=None),
    StartRule(names=("unix_socket_group",), refusal=_group, source="pqcomm.c (Setup_AF_UNIX)", seen_since=None),
)
"""Of 14 to 19."""


RULED: Final = frozenset(name for rule in RULES for name in rule.names)
"""Parameters with a rule."""
TLS: Final = frozenset(name for rule in RULES if rule.names[0] == "ssl" for name in rule.names)
"""Parameters that a change of certificates or protocols can be about."""


def next_start(session: OperatorSession, wanted: Sequence[WantedParameter], *, is_here: bool) -> NextStart:
    """Return what the next start reads when some changes of the system's scope are made.

    Args:
        session: To the server.
        wanted: The changes.
        is_here: It runs on this machine, whose groups are its groups.
    """
    texts = {each.name.lower(): each.value for each in wanted}
    names = list(dict.fromkeys(("wal_segment_size", _PASSPHRASE, *(name for rule in RULES for name in rule.names))))
    try:
        with session.plain_words():
            found = session.rows(_VALUES, names)
    except ServerProblem:
        found = session.rows(_IN_FORCE, names)
    rows = {
        row["name"]: _Row(
            unit=row["unit"] or "", vartype=row["vartype"], now=row["now"] or "", without=row["without"] or ""
        )
        for row in found
    }
    start = NextStart(rows, texts, {})
    group = start.text("unix_socket_group")
    return replace(
        start,
        directories=_directories(session, start.paths()),
        has_group=_has_group(group) if is_here and group and not group.isdecimal() else None,
    )


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _directories(session: OperatorSession, paths: Sequence[str]) -> dict[str, bool | None]:
    found: dict[str, bool | None] = {}
    for path in paths:
        # Where the role may not look, or the server may not, nothing is known.
        with suppress(ServerProblem), session.plain_words():
            rows = session.rows(_FILE, path)
            found[path] = rows[0]["is_directory"] if rows else None
    return found


def refusal_by_rules(
    before: NextStart, after: NextStart, wanted: Sequence[WantedParameter], major: int, *, tried: bool
) -> str:
    """Return why changes keep the server from starting; "" where they do not.

    Args:
        before: What the next start reads now: a rule that refuses this refuses no change.
        after: What it reads then.
        wanted: The changes.
        major: Version of the server.
        tried: The server's own program has passed it, so that the rules are left which that does not see.
    """
    names = {each.name.lower() for each in wanted}
    for rule in _rules(major, tried=tried):
        if not names.isdisjoint(rule.names) and (refusal := rule.refusal(after)) and not rule.refusal(before):
            return refusal
    return ""


def start_refusal(start: NextStart, major: int, *, tried: bool) -> str:
    """Return why the server would not start, whatever the reason is; "" where the rules know none."""
    return next(filter(None, (rule.refusal(start) for rule in _rules(major, tried=tried))), "")


def _rules(major: int, *, tried: bool) -> Iterator[StartRule]:
    """Yield the rules, without those that the server's own program has passed."""
    for rule in RULES:
        if not tried or rule.seen_since is None or major < rule.seen_since:
            yield rule
