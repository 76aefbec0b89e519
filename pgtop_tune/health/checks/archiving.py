"""Archiving of WAL and base backups: whether they are made, and whether they keep up."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from pgtop_tune.base.units import MB, about, duration
from pgtop_tune.health import needs
from pgtop_tune.health.check import (
    Check,
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Fix,
    Limits,
    Severity,
    Threshold,
    Unknown,
)
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, set_parameter
from pgtop_tune.health.questions import ARCHIVE_QUEUE, BACKUPS, CONFIGURED
from pgtop_tune.health.rules import ON_STANDBY, as_shown, now_ms, on_standby, value_finding
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import BackupCatalogue, ToolBackup
from pgtop_tune.model.postgres import Parameter

_GROUP: Final = "archiving"
_STATUS: Final = "pg_ls_archive_statusdir()"
_ARCHIVER: Final = "pg_stat_archiver"
_NOT_SHOWN: Final = "(disabled)"
"""Value of archive_command in pg_settings while archive_mode is off, whatever it is set to."""
_DOES_NOTHING: Final = frozenset({"true", ":", "exit", "echo", "printf"})
_REFUSES: Final = "false"
"""A command that always fails: the WAL stays, and ARC-02 finds it."""
_NOWHERE: Final = "/dev/null"
_SUCCEEDS: Final = "echo|printf|logger|mail|mailx|sendmail|wall|touch|date|sync|sleep|rm|chmod|chown|chgrp"
_FORGETS: Final = re.compile(
    rf"""(?:(?:\|\||;|\bthen\b)\s*(?:\S*/)?(?:true|:|exit\s+0|(?:{_SUCCEEDS})\b[^|&;]*)  # whatever went wrong before
          |(?<!\|)\|\s*(?:\S*/)?(?:tee|cat|logger|true)\b[^|&;]*                   # a pipe ends as its last command
          |(?<!&)&)                                                                 # in the background
        (?:[\s'")}};]|\bfi\b)*\Z""",
    re.VERBOSE,
)
"""The end of a command line that succeeds even where the copy fails. Source: POSIX, "Shell Command Language"."""
_COMMENT: Final = re.compile(r"\s#[^'\"]*\Z")
_ALL_OF_A_PIPE: Final = "pipefail"
_SEVERAL: Final = re.compile(r"[|&;\n]")
"""Separators of commands."""
_BEFORE_A_COMMAND: Final = frozenset({"env", "exec", "nice", "nohup", "time", "command"})
_LOOKS: Final = frozenset(
    {"ls", "stat", "test", "[", "file", "wc", "cksum", "md5sum", "sha1sum", "sha256sum", "sleep", "date", "logger"}
)
"""Programs that keep nothing of a file, wherever their output goes."""
_TO_OUTPUT: Final = frozenset({"cat", "head", "tail"})
_LEAVES: Final = {
    "mv": "takes the segment out of pg_wal, which the server needs after a crash",
    "ln": "archives a link to the segment, which the server soon overwrites",
}
"""Program → what it does in place of a copy."""
_IF_NONE: Final = re.compile(r"\s(?:-\w*n\w*|--no-clobber|--ignore-existing)(?=\s)")
"""Options of cp, and of rsync, that copy nothing where a file is and succeed."""
_UNLESS_THERE: Final = re.compile(r"(?:\btest|\[)\s+-[efrs]\s[^|&;]*\|\|")
"""A test for the target that skips the copy where it succeeds."""
_REVERSED: Final = re.compile(r"!\s+(?!-)")
_TO_ONE_FILE: Final = re.compile(r"(?:(?<![0-9&])>\s*|\bof=)(?!&|/dev/)\S*[^\s/]")
_SEGMENT: Final = ("%p", "%f")
_PATHS: Final = ("%p", "pg_wal/%f")
"""The file to archive: the command runs in the data directory."""
_INTO_SEGMENT: Final = re.compile(
    r"""(?:\b(?:cp|mv|install|rsync|scp|copyto)\s[^|&;]*%f[^|&;]*\s|>\s*|\bof=)['"]?(?:%p|pg_wal/%f)['"]?\s*(?:\Z|[|&;)])"""
)
"""A copy whose target is the segment."""
_TO_DIRECTORY: Final = re.compile(r"\s(?:-t|--target-directory)\b")
_IN_MEMORY: Final = "/dev/shm/"
_COPIES: Final = frozenset(
    {"cp", "mv", "dd", "cat", "install", "rsync", "scp", "gzip", "lz4", "zstd", "xz", "aws", "gsutil", "rclone"}
    | {"pgbackrest", "wal-g", "barman-wal-archive", "barman-cloud-wal-archive"}
)
"""Programs that archive what they are given, and find nothing by themselves."""
_OF_RECOVERY: Final = {
    "restore_command": (("%f", "%p"), "recovery never gets a segment from the archive"),
    "archive_cleanup_command": (("%r",), "the command cannot tell which segments are still needed"),
}
"""Command → what it has to name, and what happens without. Source: "Archive Recovery", archive_cleanup_command."""
_NAME: Final = re.compile(r"[0-9A-F]{24}")
_ONE_ARCHIVER_SINCE: Final = 16
"""15 took the library. Source: pgarch.c, LoadArchiveLibrary."""
_EVERY: Final = "5min"
_PLACE: Final = "basic_archive.archive_directory"
_DAY_S: Final = 86_400


def _archiving(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    if on_standby(facts):
        yield Unknown(ON_STANDBY)
        return
    if parameters.text("wal_level") == "minimal":
        row, says = parameters.row("wal_level"), "no archive, base backup or standby is possible"
        yield value_finding(facts, row, says, set_parameter(row, "replica"))
    elif parameters.text("archive_mode") == "off":
        row, says = parameters.row("archive_mode"), "the data can only be restored to the time of a backup"
        yield value_finding(facts, row, says, _archive_mode(parameters), beside=("wal_level",))
    elif len(_archivers(parameters)) > 1 and needs.major(facts) >= _ONE_ARCHIVER_SINCE:
        yield CheckFinding(
            severity=Severity.HIGH,
            says="archive_command and archive_library are both set: the archiver ends with an error, and WAL "
            "accumulates until the disk is full",
            evidence=(as_shown(facts, *_archivers(parameters)),),
            fix=by_hand("Set one of the two to an empty string, then SELECT pg_reload_conf();"),
            subject="archive_library",
        )
    elif _is_library_without_place(facts, parameters):
        yield CheckFinding(
            severity=Severity.HIGH,
            says=f"archive_library is basic_archive, and {_PLACE} is empty: WAL accumulates until the disk is full",
            evidence=(as_shown(facts, "archive_library"), Evidence(f"no {_PLACE}", CONFIGURED.source)),
            fix=by_hand(f"Set {_PLACE} to a directory, then SELECT pg_reload_conf();"),
            subject="archive_library",
        )
    elif not _archivers(parameters):
        yield CheckFinding(
            severity=Severity.HIGH,
            says="archive_mode is on without archive_command or archive_library: WAL accumulates until the disk is "
            "full",
            evidence=(as_shown(facts, "archive_mode", "archive_command"),),
            fix=by_hand("Set archive_command or archive_library; until then every segment stays in pg_wal."),
            subject="archive_command",
        )


def _is_library_without_place(facts: CheckFacts, parameters: needs.Parameters) -> bool:
    """Return whether the archiver only writes a warning; no counter of pg_stat_archiver counts that."""
    library, lines = parameters.find("archive_library"), CONFIGURED.of(facts)
    if library is None or library.setting != "basic_archive" or isinstance(lines, Unavailable):
        return False
    row = parameters.find(_PLACE)
    texts = [line.setting for _, line in lines if line.name == _PLACE] + ([] if row is None else [row.setting])
    return not any(texts)


def _archive_mode(parameters: needs.Parameters) -> Fix:
    """Return the fix for archive_mode; words where no command is set, since every segment would then stay in pg_wal."""
    if _archivers(parameters):
        return set_parameter(parameters.row("archive_mode"), "on")
    return by_hand("Set archive_command or archive_library first, then archive_mode=on and restart.")


def _archivers(parameters: needs.Parameters) -> tuple[str, ...]:
    """Return the parameters that name an archiver."""
    rows = (parameters.find(name) for name in ("archive_command", "archive_library"))
    return tuple(row.name for row in rows if row is not None and row.setting not in ("", _NOT_SHOWN))


def _failing(facts: CheckFacts, limits: Limits) -> Findings:
    archiver = facts.have(needs.ARCHIVER)
    if needs.parameters(facts).text("archive_mode") == "off":
        # Failures from before it was switched off stay in the counters.
        return
    if archiver.last_failed_ms is None or (archiver.last_archived_ms or 0) >= archiver.last_failed_ms:
        return
    ago = duration((now_ms(facts) - archiver.last_failed_ms) / 1000)
    yield CheckFinding(
        severity=Severity.HIGH,
        says=f"archiving fails: the last attempt ({ago} ago, {archiver.last_failed_wal}) failed, and none has "
        "succeeded since",
        evidence=(
            Evidence(f"{archiver.failed_count} failures, last {archiver.last_failed_wal}", f"{_ARCHIVER}.failed_count"),
            Evidence(f"last archived: {archiver.last_archived_wal or 'none'}", f"{_ARCHIVER}.last_archived_wal"),
        ),
        fix=by_hand("Run archive_command yourself as the server's account; the server's log has its messages."),
    )


def _queue(facts: CheckFacts, limits: Limits) -> Findings:
    if needs.parameters(facts).text("archive_mode") == "off":
        return
    for _, queue in facts.have(ARCHIVE_QUEUE):
        if queue.oldest_ms is None:
            continue
        waits_s = (queue.now_ms - queue.oldest_ms) / 1000
        if waits_s > limits["seconds"]:
            yield CheckFinding(
                severity=Severity.HIGH if waits_s >= limits["high"] else Severity.WARNING,
                says=f"a WAL segment has waited {duration(waits_s)} for the archive; {queue.waiting} in the queue",
                evidence=(Evidence(f".ready files: {queue.waiting}, the oldest {waits_s:.0f} s old", _STATUS),),
                fix=by_hand(
                    "Speed up archive_command (run it in parallel, or compress less) or the connection to the archive."
                ),
            )


def _archive_command(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    row = parameters.find("archive_command")
    if row is None or parameters.text("archive_mode") == "off" or row.setting in ("", _NOT_SHOWN):
        return
    # The shell sees "%%" as one per cent sign.
    command = _COMMENT.sub("", row.setting).replace("%%", "").strip()
    faulty = _fault(command)
    if faulty is None:
        return
    severity, fault, do = faulty
    yield CheckFinding(
        severity=severity,
        says=f"archive_command {row.setting!r} {fault}",
        evidence=(as_shown(facts, "archive_mode", "archive_command"),),
        fix=by_hand(do, "Restore the former archive_command, then SELECT pg_reload_conf();"),
        confidence=CheckConfidence.HIGH if severity is Severity.HIGH else CheckConfidence.LOW,
        subject="archive_command",
    )


def _program(command: str) -> str:
    """Return the program that a command line starts with; "" where it only sets variables."""
    parts = (PurePosixPath(word.rstrip(";")).name for word in command.split())
    return next((part for part in parts if part not in _BEFORE_A_COMMAND), "")


def _fault(command: str) -> tuple[Severity, str, str] | None:
    """Return how badly an archive_command fails to archive, how, and what to do; None where it seems to archive."""
    first = _program(command)
    copies = first in _COPIES
    if first == _REFUSES:
        return None
    lost = "the server removes WAL that exists nowhere else"
    is_one = not _SEVERAL.search(command)
    keeps_nothing = is_one and (first in _LOOKS or (first in _TO_OUTPUT and ">" not in command))
    does_nothing = first in _DOES_NOTHING or _NOWHERE in command or keeps_nothing
    if does_nothing or not any(word in command for word in _SEGMENT):
        do = "Set a command that copies %p to the archive, and take a base backup: earlier WAL is lost."
        return Severity.HIGH, f"archives nothing: {lost}", do
    if not any(word in command for word in _PATHS):
        do = "Copy %p (or pg_wal/%f), test a restore from the archive, and take a base backup if that fails."
        return (
            Severity.HIGH if copies else Severity.WARNING,
            "does not contain %p, the file to archive" + (", and copies another file" if copies else ""),
            do,
        )
    if first in _LEAVES:
        return Severity.HIGH, _LEAVES[first], "Copy %p (cp, rsync, or the tool in use), and take a base backup."
    if _REVERSED.match(command):
        do = "Remove the ! at the start of the command, and take a base backup: WAL is missing from the archive."
        return Severity.HIGH, f"succeeds only when the copy fails: {lost}", do
    if _INTO_SEGMENT.search(command):
        do = "Use %p as the source and the archive as the target, and take a base backup: WAL may be damaged."
        return Severity.HIGH, "overwrites the segment in pg_wal with a file of the archive", do
    if _is_kept_in_memory(command):
        do = "Archive to another machine, or at least to a disk, and take a base backup."
        return Severity.HIGH, f"archives to {_IN_MEMORY}, which is empty after a reboot", do
    end = None if _ALL_OF_A_PIPE in command else _FORGETS.search(command)
    if end is not None:
        do = (
            "Remove that end, so that the command returns the status of the copy, and take a base backup: WAL may "
            "be missing from the archive."
        )
        return Severity.HIGH, f"succeeds even when the copy fails ({end.group().strip()!r} at its end): {lost}", do
    return _one_file(command, first)


def _is_kept_in_memory(command: str) -> bool:
    """Return whether every copy that a command line makes goes to shared memory."""
    copies = [part for part in _SEVERAL.split(command) if _program(part) in _COPIES]
    return bool(copies) and all(_IN_MEMORY in part.split()[-1] for part in copies)


def _one_file(command: str, first: str) -> tuple[Severity, str, str] | None:
    """Return the fault of a command whose copies may come to be one file, or none."""
    target = _TO_ONE_FILE.search(command)
    if "%f" not in command and target is not None:
        do = "Use %f as the file name in the archive, and take a base backup: earlier WAL is lost."
        return Severity.HIGH, f"overwrites the previous segment with each new one ({target.group().strip()!r})", do
    last = command.split()[-1]
    names_directory = last.endswith(("/", '/"', "/'")) or _TO_DIRECTORY.search(command)
    if "%f" not in command and first in ("cp", "install") and not names_directory:
        do = f"Write {last}/ if that is a directory, else use %f as the file name; then SELECT pg_reload_conf();"
        return Severity.WARNING, f"overwrites the previous segment with each new one, unless {last} is a directory", do
    skip = _IF_NONE.search(command) if first in ("cp", "rsync") else _UNLESS_THERE.search(command)
    if skip is not None and (first != "rsync" or "--" in skip.group()):
        do = f"Replace {skip.group().strip()} with a test before the copy: test ! -f TARGET && cp %p TARGET"
        return Severity.WARNING, "succeeds without a copy if a file of that name exists, whatever it contains", do
    return None


def _commands(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _archive_command(facts, limits)
    parameters = needs.parameters(facts)
    for name, (needed, so) in _OF_RECOVERY.items():
        row = parameters.find(name)
        command = "" if row is None else row.setting.replace("%%", "")
        lacking = [word for word in needed if word not in command]
        if row is not None and row.setting and lacking:
            yield CheckFinding(
                says=f"{name} {row.setting!r} lacks {' and '.join(lacking)}: {so}",
                evidence=(as_shown(facts, name),),
                fix=by_hand(
                    f"Add {' and '.join(lacking)} to the command, then SELECT pg_reload_conf();",
                    f"Restore the former {name}, then SELECT pg_reload_conf();",
                ),
                subject=name,
            )


def _old(facts: CheckFacts, limits: Limits) -> Findings:
    parameters, archiver, wal = needs.parameters(facts), facts.have(needs.ARCHIVER), facts.have(needs.WAL)
    mode = parameters.text("archive_mode")
    if mode == "off" or not _archivers(parameters) or (on_standby(facts) and mode != "always"):
        return
    if archiver.last_failed_ms is not None and archiver.last_failed_ms > (archiver.last_archived_ms or 0):
        return
    timeout = parameters.row("archive_timeout")
    # A restart switches archiving on; the counters may be older.
    began_ms = max(archiver.stats_reset_ms or 0, facts.have(needs.SERVER).started_ms)
    age_s = (now_ms(facts) - (archiver.last_archived_ms or began_ms)) / 1000
    end = _end_of(archiver.last_archived_wal, parameters.whole("wal_segment_size"))
    since = 0 if end is None or wal.lsn_bytes is None else wal.lsn_bytes - end
    never = archiver.last_archived_ms is None
    if age_s > limits["seconds"] and (never or since > limits["bytes"]):
        yield CheckFinding(
            says=f"no WAL has been archived for {duration(age_s)}: {'all of it' if never else about(since)} is lost "
            "with the machine",
            evidence=(
                Evidence(f"last archived: {archiver.last_archived_wal or 'none'}", f"{_ARCHIVER}.last_archived_wal"),
                as_shown(facts, "archive_timeout"),
            ),
            fix=_timeout(timeout, parameters),
            subject="age",
        )
    elif 0 < parameters.number("archive_timeout") < limits["timeout"]:
        says = "a whole segment is archived each time, full or not"
        yield value_finding(facts, timeout, says, set_parameter(timeout, _EVERY))
    elif parameters.number("archive_timeout") == 0:
        says = "a quiet server archives its last commits only when a segment is full, hours later"
        yield value_finding(facts, timeout, says, set_parameter(timeout, _EVERY), severity=Severity.INFO)


def _timeout(row: Parameter, parameters: needs.Parameters) -> Fix:
    if parameters.number("archive_timeout") == 0:
        return set_parameter(row, _EVERY)
    return by_hand("SELECT pg_switch_wal(), then check in pg_stat_archiver and the log whether archive_command runs.")


def _end_of(segment: str | None, segment_bytes: int) -> int | None:
    """Return the position at which a segment ends; None for names of other files."""
    if segment is None or not _NAME.fullmatch(segment):
        return None
    return int(segment[8:16], 16) * 2**32 + (int(segment[16:], 16) + 1) * segment_bytes


def _has_tool_backups(facts: CheckFacts) -> bool:
    """Return whether a tool's catalogue has backups: BAK-02 judges them."""
    tools = needs.BACKUP_TOOLS.of(facts)
    return not isinstance(tools, Unavailable) and any(catalogue.backups for catalogue in tools.catalogues)


def _backups(facts: CheckFacts, limits: Limits) -> Findings:
    if needs.parameters(facts).text("archive_mode") == "off":
        # The server keeps no history then; ARC-01 says that archiving is off.
        return
    for _, history in facts.have(BACKUPS):
        if history.newest_ms is None and _has_tool_backups(facts):
            return
        if history.newest_ms is None:
            yield Unknown("pg_wal contains no backup history file: backups of a standby and snapshots leave none")
            continue
        age_s = (history.now_ms - history.newest_ms) / 1000
        if age_s > limits["days"] * _DAY_S:
            yield CheckFinding(
                severity=Severity.HIGH if age_s > limits["high"] * _DAY_S else Severity.WARNING,
                says=f"the last base backup ended {duration(age_s)} ago: a restore replays all WAL since then",
                evidence=(Evidence(f"{age_s:.0f} s", "pg_ls_waldir().modification of *.backup"),),
                fix=by_hand("Take a base backup (pg_basebackup, or the tool in use), and find out why none was taken."),
                subject="backup",
            )


_TOOLS: Final = "pgBackRest, Barman, WAL-G"


def _catalogues(facts: CheckFacts, limits: Limits) -> Findings:
    tools = facts.have(needs.BACKUP_TOOLS)
    if not tools.installed:
        yield CheckFinding(
            severity=Severity.INFO,
            says="no backup tool found on this machine: the time of the last base backup is unknown",
            evidence=(Evidence(f"looked for {_TOOLS}", "PATH"),),
            fix=by_hand("If another machine takes the backups, check there; else set up one of these tools."),
            subject="tools",
        )
        return
    for tool, reason in tools.problems:
        yield Unknown(f"{tool}: {reason}")
    identifier = facts.have(needs.SERVER).system_identifier
    untold = [catalogue for catalogue in tools.catalogues if not catalogue.system_identifiers]
    if len(untold) > 1:
        yield Unknown(
            f"{untold[0].tool} has {', '.join(catalogue.name for catalogue in untold)}, and does not report which is "
            "this server"
        )
        return
    of_this_server = [
        catalogue
        for catalogue in tools.catalogues
        if not catalogue.system_identifiers or identifier in catalogue.system_identifiers
    ]
    if not of_this_server:
        if not tools.problems:
            yield _none(facts, tools.installed)
        return
    for catalogue in of_this_server:
        yield from _judged(facts, catalogue, limits)


def _none(facts: CheckFacts, installed: tuple[str, ...]) -> CheckFinding:
    identifier = facts.have(needs.SERVER).system_identifier
    return CheckFinding(
        severity=Severity.HIGH,
        says=f"{' and '.join(installed)} {'has' if len(installed) == 1 else 'have'} no backup of this server",
        evidence=(Evidence(f"no system identifier {identifier}", "the tool's catalogue"),),
        fix=by_hand("Configure the tool for this server, and take a full backup."),
        subject="none",
    )


def _judged(facts: CheckFacts, catalogue: BackupCatalogue, limits: Limits) -> Findings:
    called = f"{catalogue.tool} {catalogue.name}".rstrip()
    ended = [backup for backup in catalogue.backups if backup.ended_ms is not None]
    good = [backup for backup in ended if backup.full and not backup.failed]
    newest = max(catalogue.backups, key=_end_ms, default=None)
    if newest is not None and newest.failed:
        yield CheckFinding(
            severity=Severity.HIGH,
            says=f"{called}: the newest backup, {newest.label}, is faulty: {newest.failed}",
            evidence=(Evidence(f"{newest.label}: {newest.failed}", f"catalogue of {catalogue.tool}"),),
            fix=by_hand("Find the cause in the tool's log, then take a full backup."),
            subject=f"{called} failed",
        )
    if not good:
        yield CheckFinding(
            severity=Severity.HIGH,
            says=f"{called}: no full backup has succeeded",
            evidence=(Evidence(f"{len(catalogue.backups)} backups", f"catalogue of {catalogue.tool}"),),
            fix=by_hand("Take a full backup."),
            subject=called,
        )
        return
    last = max(good, key=_end_ms)
    age_s = (now_ms(facts) - (last.ended_ms or 0)) / 1000
    if age_s > limits["days"] * _DAY_S:
        yield CheckFinding(
            severity=Severity.HIGH if age_s > limits["high"] * _DAY_S else Severity.WARNING,
            says=f"{called}: the last full backup, {last.label}, ended {duration(age_s)} ago",
            evidence=(Evidence(f"{last.label}, {age_s:.0f} s ago", f"catalogue of {catalogue.tool}"),),
            fix=by_hand("Take a full backup, and find out why none was taken."),
            subject=called,
        )


def _end_ms(backup: ToolBackup) -> int:
    """Return the end of a backup; one that has not ended is the newest."""
    return 2**63 if backup.ended_ms is None else backup.ended_ms


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="ARC-01",
        group=_GROUP,
        title="WAL archiving",
        why="Without an archive of the WAL everything since the last backup is lost with the machine.",
        severity=Severity.HIGH,
        page="continuous-archiving.html",
        needs=(needs.SERVER, needs.PARAMETERS),
        asks=(CONFIGURED,),
        look=_archiving,
    ),
    Check(
        id="ARC-02",
        group=_GROUP,
        title="failing archiver",
        why="Segments that cannot be archived fill the WAL disk, and a full WAL disk stops the server.",
        severity=Severity.HIGH,
        page="monitoring-stats.html#MONITORING-PG-STAT-ARCHIVER-VIEW",
        needs=(needs.PARAMETERS, needs.ARCHIVER),
        look=_failing,
    ),
    Check(
        id="ARC-03",
        group=_GROUP,
        title="lagging archive",
        why="Unarchived WAL is lost with the machine, and occupies the WAL disk.",
        severity=Severity.HIGH,
        page="continuous-archiving.html#BACKUP-ARCHIVING-WAL",
        needs=(needs.PARAMETERS, ARCHIVE_QUEUE),
        look=_queue,
        thresholds=(
            Threshold("seconds", 300, "s", "a segment that waits longer is a warning"),
            Threshold("high", 3600, "s", "a high finding from this value"),
        ),
    ),
    Check(
        id="ARC-04",
        group=_GROUP,
        title="archive commands that do nothing",
        why="The server trusts the command's exit status, and removes WAL that is in no archive.",
        severity=Severity.HIGH,
        page="runtime-config-wal.html#GUC-ARCHIVE-COMMAND",
        needs=(needs.PARAMETERS,),
        look=_commands,
    ),
    Check(
        id="ARC-05",
        group=_GROUP,
        title="age of the archive",
        why="Commits since the last archived segment are lost with the machine.",
        page="runtime-config-wal.html#GUC-ARCHIVE-TIMEOUT",
        needs=(needs.SERVER, needs.PARAMETERS, needs.ARCHIVER, needs.WAL),
        look=_old,
        thresholds=(
            Threshold("seconds", 3600, "s", "an older last segment is a warning, when bytes is exceeded as well"),
            Threshold("bytes", MB, "bytes", "more WAL since then is a warning, when seconds is exceeded as well"),
            Threshold("timeout", 30, "s", "a shorter archive_timeout is a warning"),
        ),
    ),
    Check(
        id="BAK-01",
        group="backups",
        title="age of the last base backup",
        why="Recovery starts from a base backup, and takes longer the more WAL was written since then.",
        severity=Severity.HIGH,
        page="continuous-archiving.html#BACKUP-BASE-BACKUP",
        needs=(needs.PARAMETERS, BACKUPS),
        look=_backups,
        thresholds=(
            Threshold("days", 7, "d", "an older one is a warning"),
            Threshold("high", 30, "d", "an older one is a high finding"),
        ),
    ),
    Check(
        id="BAK-02",
        group="backups",
        title="backups of backup tools",
        why="An installed tool is not yet a backup, and an old full backup makes a restore long or impossible.",
        severity=Severity.HIGH,
        page="continuous-archiving.html#BACKUP-BASE-BACKUP",
        needs=(needs.SERVER, needs.BACKUP_TOOLS),
        look=_catalogues,
        thresholds=(
            Threshold("days", 8, "d", "an older full backup is a warning"),
            Threshold("high", 32, "d", "an older full backup is a high finding"),
        ),
    ),
)
