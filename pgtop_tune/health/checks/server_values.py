"""Memory, background writer and log: values that suit no server."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import GB, MB
from pgtop_tune.health import needs
from pgtop_tune.health.bounds import Bound, bounded, thresholds
from pgtop_tune.health.check import Check, Severity
from pgtop_tune.health.needs import Parameters
from pgtop_tune.model.parameter_values import message_levels
from pgtop_tune.model.postgres import Parameter

_LOG: Final = "logging and statistics"
_TIMES: Final = ("%m", "%t", "%n")
_PROCESSES: Final = ("%p", "%c")
_FILES: Final = frozenset({"csvlog", "jsonlog"})
_SILENT_LEVELS: Final = frozenset({"error", "log", "fatal", "panic"})


def _tells_too_little(known: Parameters, row: Parameter) -> bool:
    return not all(any(word in row.setting for word in words) for words in (_TIMES, _PROCESSES))


def _has_no_collector(known: Parameters, row: Parameter) -> bool:
    destinations = {part.strip() for part in row.setting.lower().split(",")}
    return bool(destinations & _FILES) and not known.on("logging_collector")


def _grows_forever(known: Parameters, row: Parameter) -> bool:
    return known.on("logging_collector") and known.number("log_rotation_size") == 0 == known.number(row.name)


def _never_empties(known: Parameters, row: Parameter) -> bool:
    """A file is emptied only when rotation by time begins another one. Source: logfile_rotate() in syslogger.c."""
    return known.on("logging_collector") and known.on("log_truncate_on_rotation") and "%" not in row.setting


def _others_may_read(known: Parameters, row: Parameter) -> bool:
    return known.on("logging_collector") and bool(int(row.setting, 8) & 0o007)


_VISIBLE: Final = (
    Bound(
        name="track_activities",
        words=("off",),
        better="on",
        says="pg_stat_activity does not show what sessions do",
    ),
    Bound(
        name="track_activity_query_size",
        below=1024,
        unit="bytes",
        better="1kB",
        says="statements are cut before their condition",
    ),
)
_MEMORY: Final = (
    Bound(
        name="maintenance_work_mem",
        below=64 * MB,
        unit="bytes",
        better="64MB",
        says="index builds sort on disk, and vacuum reads indexes several times",
    ),
    Bound(
        name="autovacuum_work_mem",
        below=64 * MB,
        unit="bytes",
        better="-1",
        says="autovacuum reads the indexes of large tables several times",
    ),
    Bound(
        name="temp_buffers",
        above=GB,
        unit="bytes",
        better="8MB",
        says="each session that uses temporary tables keeps that much until it ends",
    ),
    Bound(
        name="hash_mem_multiplier",
        above=8,
        better="2",
        says="each hash of each session may take that many times work_mem",
    ),
    Bound(
        name="dynamic_shared_memory_type",
        words=("mmap",),
        better="posix",
        says="parallel queries exchange rows through files of the data directory",
    ),
    Bound(
        name="shared_memory_type",
        words=("sysv",),
        better="mmap",
        severity=Severity.INFO,
        says="the kernel's limits for System V memory apply",
    ),
)
_PROCESSES_OWN: Final = (
    Bound(
        name="max_files_per_process",
        below=500,
        better="1000",
        special=(),
        says="a session with many relations closes and opens their files all the time",
    ),
    Bound(
        name="max_stack_depth",
        below=MB,
        unit="bytes",
        better="2MB",
        special=(),
        says="long expressions and deep views fail with an error",
    ),
)
_BACKGROUND: Final = (
    Bound(
        name="bgwriter_delay",
        above=1,
        unit="s",
        better="200ms",
        says="backends write dirty buffers themselves between two rounds",
    ),
    Bound(
        name="bgwriter_lru_multiplier",
        below=1,
        better="2",
        special=(),
        says="it writes fewer buffers than backends will need",
    ),
    Bound(
        name="bgwriter_lru_maxpages",
        below=50,
        better="100",
        says="it stops after so few buffers of a round",
    ),
)
_LINES: Final = (
    Bound(
        name="log_min_messages",
        judged=lambda known, row: not _SILENT_LEVELS.isdisjoint(message_levels(row.setting)),
        better="warning",
        says="the log lacks warnings of the server, or errors as well",
    ),
    Bound(
        name="log_min_error_statement",
        words=("log", "fatal", "panic"),
        better="error",
        says="the log has errors without the statements that failed",
    ),
    Bound(
        name="log_error_verbosity",
        words=("terse",),
        better="default",
        says="the log lacks details and hints of errors",
    ),
    Bound(
        name="log_line_prefix",
        judged=_tells_too_little,
        better="%m [%p] %q%u@%d ",
        says="lines of the log lack their time or their process",
    ),
    Bound(
        name="log_hostname",
        words=("on",),
        better="off",
        says="each new connection waits for the name server",
    ),
    Bound(
        name="log_destination",
        judged=_has_no_collector,
        better="stderr",
        says="only the collector writes these files, and logging_collector is off",
    ),
    Bound(
        name="log_file_mode",
        judged=_others_may_read,
        better="0600",
        says="each user of the machine may read statements, and the data in them",
    ),
    Bound(
        name="log_rotation_age",
        judged=_grows_forever,
        better="1d",
        says="log_rotation_size is 0 as well, so one file grows until the disk is full",
    ),
    Bound(
        name="log_filename",
        judged=_never_empties,
        better="postgresql-%Y-%m-%d_%H%M%S.log",
        says="with one name for ever, log_truncate_on_rotation never empties the file",
    ),
)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="MEM-08",
        group="memory",
        title="memory for single purposes",
        why="These settings are multiplied by sessions, or decide how often a job reads everything again.",
        severity=Severity.WARNING,
        page="runtime-config-resource.html#RUNTIME-CONFIG-RESOURCE-MEMORY",
        needs=(needs.PARAMETERS,),
        look=bounded((*_MEMORY, *_PROCESSES_OWN)),
        thresholds=thresholds((*_MEMORY, *_PROCESSES_OWN)),
    ),
    Check(
        id="BGW-04",
        group="background writer",
        title="rounds of the background writer",
        why="Where the background writer does too little, each backend writes old pages before it reads its own.",
        severity=Severity.WARNING,
        page="runtime-config-resource.html#RUNTIME-CONFIG-RESOURCE-BACKGROUND-WRITER",
        needs=(needs.PARAMETERS,),
        look=bounded(_BACKGROUND),
        thresholds=thresholds(_BACKGROUND),
    ),
    Check(
        id="LOG-06",
        group=_LOG,
        title="content of the log",
        why="After an incident, a log without times, processes, statements or warnings explains nothing.",
        severity=Severity.WARNING,
        page="runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-WHAT",
        needs=(needs.PARAMETERS,),
        look=bounded(_LINES),
        thresholds=thresholds(_LINES),
    ),
    Check(
        id="OBS-04",
        group=_LOG,
        title="visible sessions",
        why="An operator who does not see what sessions run cannot end the one that does harm.",
        severity=Severity.WARNING,
        page="runtime-config-statistics.html#GUC-TRACK-ACTIVITIES",
        needs=(needs.PARAMETERS,),
        look=bounded(_VISIBLE),
        thresholds=thresholds(_VISIBLE),
    ),
)
