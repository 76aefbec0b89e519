"""Values that a reload accepts and the next start refuses: a row for each rule of the server's start. Pure.

A reload checks each value by itself; a start checks what several values and the machine's files come to. The file as it
is is judged first, and only a fault that a change adds refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.changes.model.change import WantedParameter
from pgtop_tune.changes.start.next_start import TLS_FILES, NextStart, above
from pgtop_tune.cluster.auto_conf import FILE_NAME

_VERSIONS: Final = ("", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_LONGEST_SOCKET: Final = 107
"""Bytes of the path of a socket (unix(7), sun_path)."""
_LONGEST_NAME: Final = 255
_STATEMENT_STATS: Final = ("log_parser_stats", "log_planner_stats", "log_executor_stats")
_TARGETS: Final = tuple(f"recovery_target{end}" for end in ("", "_xid", "_name", "_lsn", "_time"))


class StartRule(Struct, frozen=True, kw_only=True):
    """A rule of the server's start.

    Attributes:
        names: Parameters that it is about.
        refusal: Message of a server that does not start; "" where it does.
        source: File of the server with the rule.
        seen_since: Major version whose dry start sees it, too; None where none does.
    """

    names: tuple[str, ...]
    refusal: Callable[[NextStart], str]
    source: str
    seen_since: int | None = 15


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


def _file_of_tls(name: str, description: str, *, directory: bool = False) -> Callable[[NextStart], str]:
    def refusal(start: NextStart) -> str:
        path = start.text(name)
        if not start.is_on("ssl") or path == "":
            return ""
        fault = "No such file or directory" if start.is_missing(path, directory=directory) else start.closed.get(path)
        return f'could not load {description} "{path}": {fault}' if fault else ""

    return refusal


def _tls_versions(start: NextStart) -> str:
    least, most = start.text("ssl_min_protocol_version"), start.text("ssl_max_protocol_version")
    if not start.is_on("ssl") or most == "" or least not in _VERSIONS or most not in _VERSIONS:
        return ""
    wrong = _VERSIONS.index(least) > _VERSIONS.index(most)
    return 'could not set SSL protocol version range: "ssl_min_protocol_version" cannot be higher' if wrong else ""


def _access_file(start: NextStart) -> str:
    path = start.text("hba_file")
    if path and not path.startswith("/"):
        if "hba_file" not in start.changes:
            return ""
        return f'"{path}" is relative to an unknown start directory: use an absolute path'
    if path and start.is_missing(path):
        return f'could not load "{path}": No such file or directory'
    fault = start.closed.get(path) or start.access_fault
    return f'could not load "{path}": {fault}' if fault else ""


def _data(start: NextStart) -> str:
    path = start.text("data_directory")
    fault = "does not exist" if start.is_missing(path, directory=True) else start.closed.get(path)
    return f'data directory "{path}" {fault}' if fault else ""


def _configuration(start: NextStart) -> str:
    for path in (start.text("config_file"), f"{start.text('data_directory')}/{FILE_NAME}"):
        if fault := start.closed.get(path):
            return f'could not open configuration file "{path}": {fault}'
    return ""


def _group(start: NextStart) -> str:
    group = start.text("unix_socket_group")
    return f'group "{group}" does not exist' if start.has_group is False else ""


def _log_file(start: NextStart) -> str:
    if not start.is_on("logging_collector"):
        return ""
    directory, name = start.text("log_directory"), start.text("log_filename")
    # The server makes the directory itself, and none above it.
    is_file = start.is_missing(directory, directory=True) and not start.is_missing(directory)
    is_lost = not directory or is_file or start.is_missing(above(directory), directory=True)
    is_deeper = "/" in name and "%" not in name and start.is_missing(above(f"{directory}/{name}"), directory=True)
    if fault := start.closed.get(directory):
        return f'could not open log file "{directory}/{name}": {fault}'
    if is_lost or is_deeper or name in ("", ".", "..") or len(name.encode()) > _LONGEST_NAME:
        return f'could not open log file "{directory}/{name}"'
    return ""


def _slots(start: NextStart) -> str:
    level, slots = start.text("wal_level").lower(), start.counts.get("slots", 0)
    if level == "minimal" and slots:
        return 'replication slots exist, but "wal_level" < "replica"'
    # Since 19 a slot raises the level itself.
    if level == "replica" and start.counts.get("logical_slots", 0) and "effective_wal_level" not in start.rows:
        return 'logical replication slots exist, but "wal_level" < "logical"'
    most = start.number("max_replication_slots")
    if most is not None and slots > most:
        return f'too many replication slots active before shutdown ({slots}): increase "max_replication_slots"'
    return ""


def _origins(start: NextStart) -> str:
    name = "max_active_replication_origins"
    most = start.number(name if name in start.rows else "max_replication_slots")
    if most and start.counts.get("origins", 0) > most:
        return (
            f"could not find free replication state, increase {name if name in start.rows else 'max_replication_slots'}"
        )
    return ""


def _prepared(start: NextStart) -> str:
    most = start.number("max_prepared_transactions")
    is_less = most is not None and start.counts.get("prepared", 0) > most
    return "maximum number of prepared transactions reached" if is_less else ""


def _sockets(start: NextStart) -> str:
    paths = {directory: f"{directory}/.s.PGSQL.{start.text('port')}" for directory in start.socket_directories()}
    too_long = [directory for directory, path in paths.items() if len(path.encode()) > _LONGEST_SOCKET]
    if too_long and len(too_long) == len(paths):
        # One that can be made is enough.
        return f'Unix-domain socket path "{paths[too_long[0]]}" is too long (maximum {_LONGEST_SOCKET} bytes)'
    for directory, path in paths.items():
        if directory in too_long:
            continue
        if start.is_missing(directory, directory=True):
            return f'could not create lock file "{path}.lock": No such file or directory'
        if fault := start.closed.get(directory):
            return f'could not create lock file "{path}.lock": {fault}'
    return ""


def _targets(start: NextStart) -> str:
    return "multiple recovery targets specified" if sum(bool(start.text(name)) for name in _TARGETS) > 1 else ""


def _statement_stats(start: NextStart) -> str:
    are_both_on = start.is_on("log_statement_stats") and any(map(start.is_on, _STATEMENT_STATS))
    return 'cannot enable "log_statement_stats" when another of these statistics is on' if are_both_on else ""


def _huge_pages(start: NextStart) -> str:
    is_sysv = start.text("huge_pages").lower() == "on" and start.text("shared_memory_type").lower() == "sysv"
    return 'huge pages not supported with the current "shared_memory_type" setting' if is_sysv else ""


def _statistics(start: NextStart) -> str:
    path = start.text("stats_temp_directory")
    return f'could not open directory "{path}" after a crash' if start.is_missing(path, directory=True) else ""


def _namespace(start: NextStart) -> str:
    is_refused = start.is_on("db_user_namespace") and start.counts.get("md5_lines", 0)
    return 'MD5 authentication is not supported when "db_user_namespace" is enabled' if is_refused else ""


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
            refusal=_file_of_tls(name, description, directory=name.endswith("_dir")),
            source="be-secure-openssl.c (be_tls_init)",
        )
        for name, description in TLS_FILES.items()
    ),
    StartRule(
        names=("ssl", "ssl_min_protocol_version", "ssl_max_protocol_version"),
        refusal=_tls_versions,
        source="be-secure-openssl.c (be_tls_init)",
    ),
    StartRule(
        names=("log_directory", "log_filename", "logging_collector"),
        refusal=_log_file,
        source="syslogger.c (logfile_open)",
        seen_since=None,
    ),
    *(
        StartRule(names=names, refusal=refusal, source=source, seen_since=None)
        for names, refusal, source in (
            (("wal_level", "max_replication_slots"), _slots, "slot.c (RestoreSlotFromDisk)"),
            (
                ("max_replication_slots", "max_active_replication_origins"),
                _origins,
                "origin.c (StartupReplicationOrigin)",
            ),
            (("max_prepared_transactions",), _prepared, "twophase.c (MarkAsPreparing)"),
            (("unix_socket_directories", "port"), _sockets, "pqcomm.c (ListenServerPort)"),
            (("listen_addresses", "port"), lambda start: start.cannot_listen, "postmaster.c (PostmasterMain)"),
            (("huge_pages", "shared_memory_type"), _huge_pages, "sysv_shmem.c (PGSharedMemoryCreate)"),
            (("stats_temp_directory",), _statistics, "fd.c (ReadDirExtended), 14"),
            (("db_user_namespace",), _namespace, "hba.c (parse_hba_line), 14 to 16"),
        )
    ),
    StartRule(
        names=_TARGETS, refusal=_targets, source="xlogrecovery.c (error_multiple_recovery_targets)", seen_since=14
    ),
    StartRule(
        names=("log_statement_stats", *_STATEMENT_STATS),
        refusal=_statement_stats,
        source="guc_tables.c (check_log_stats)",
        seen_since=14,
    ),
    StartRule(names=("hba_file",), refusal=_access_file, source="postmaster.c (PostmasterMain)", seen_since=None),
    StartRule(names=("data_directory",), refusal=_data, source="miscinit.c (checkDataDir)", seen_since=None),
    StartRule(names=("config_file",), refusal=_configuration, source="guc-file.l (ParseConfigFile)", seen_since=14),
    StartRule(names=("unix_socket_group",), refusal=_group, source="pqcomm.c (Setup_AF_UNIX)", seen_since=None),
)
"""Of 14 to 19."""


PARAMETERS: Final = tuple(dict.fromkeys(("effective_wal_level", *(name for rule in RULES for name in rule.names))))
"""Parameters with a rule, and those that rules look at."""


def refusal_by_rules(
    before: NextStart, after: NextStart, changes: Sequence[WantedParameter], major: int, *, tried: bool
) -> str:
    """Return why changes keep the server from starting; "" where they do not.

    Args:
        before: The next start without the changes: a rule that refuses it refuses no change.
        after: The next start with the changes.
        changes: The changes.
        major: Version of the server.
        tried: The server's own program has passed it, so that the rules are left which that does not see.
    """
    names = {change.name.lower() for change in changes}
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
