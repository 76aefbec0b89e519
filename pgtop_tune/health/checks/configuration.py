"""Configuration that is not in force, the server's release and its support, and how old its statistics are."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from importlib.resources import files
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.base.units import duration
from pgtop_tune.changes.model.change_set import RestartVerdict
from pgtop_tune.changes.start.checks import FILES, checks
from pgtop_tune.changes.start.next_start import AT_START
from pgtop_tune.changes.start.rules import PARAMETERS
from pgtop_tune.changes.statements import QUOTED_LISTS, elements
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.configured import other_values, restart_facts, row_with_value, start_files
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, set_parameter, set_several
from pgtop_tune.health.judge import statistics_age_s
from pgtop_tune.health.questions import (
    CONFIGURED,
    CONTROL,
    FILE_ERRORS,
    HBA,
    SCOPED,
    START_FILES,
    TABLESPACES,
    FileError,
    StartFile,
)
from pgtop_tune.health.rules import Scoped, also_scoped, as_shown, first_few
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter, newer_than_known

_OF_TABLESPACES: Final = ("temp_tablespaces", "default_tablespace")

# Releases of PostgreSQL and the ends of their support, as of a day: data/releases.toml.


class Release(Struct, frozen=True):
    """A major version.

    Attributes:
        newest_minor: 6 of 18.6.
        last_release: The day of its last fixes.
    """

    newest_minor: int
    last_release: date


class Releases(Struct, frozen=True):
    """Releases as they were known on a day.

    Attributes:
        as_of: The day.
        majors: By major version.
    """

    as_of: date
    majors: Mapping[int, Release]


@cache
def releases() -> Releases:
    """Return the releases that are shipped. Source: postgresql.org, "Versioning Policy"."""
    text = files("pgtop_tune.health").joinpath("data", "releases.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    return Releases(document["as_of"], {int(major): Release(**row) for major, row in document["majors"].items()})


_GROUP: Final = "configuration"
_SHOWN: Final = 10
_DAY_S: Final = 86_400


def _pending(facts: CheckFacts, limits: Limits) -> Findings:
    if needs.parameters(facts).are_hidden:
        yield Unknown(
            "parameters hidden from this role may wait for a restart as well; GRANT pg_read_all_settings grants access"
        )
    waiting = [row for row in facts.have(needs.PARAMETERS).parameters if row.pending_restart]
    if waiting:
        names = first_few((row.name for row in waiting), _SHOWN)
        yield CheckFinding(
            says=f"{len(waiting)} {'parameters wait' if len(waiting) > 1 else 'parameter waits'} for a restart: "
            f"{names}",
            evidence=tuple(
                Evidence(f"{row.name} is still {row.shown}", "pg_settings.pending_restart") for row in waiting[:_SHOWN]
            ),
            fix=by_hand("Restart the server, or undo the change in the file and reload."),
        )


def refused_lines(facts: CheckFacts) -> Iterator[tuple[FileError, bool]]:
    """Yield lines that are not in force, and whether a start fails because of them: one for a restart is only early.

    Raises:
        Missing: They are not known.
    """
    rows = {row.name: row for row in facts.have(needs.PARAMETERS).parameters}
    lines = CONFIGURED.of(facts)
    texts = {} if isinstance(lines, Unavailable) else {line.name: line.next for _, line in lines}
    for error in dict.fromkeys(error for _, error in facts.have(FILE_ERRORS)):
        row, text = rows.get(error.name or ""), texts.get((error.name or "").lower())
        is_valid = row is not None and text is not None and _is_valid(row, text)
        # With Patroni the command line has the value in force, and the file may have another.
        if row is not None and (row.pending_restart or (is_valid and row.source in AT_START)):
            continue
        yield error, not (is_valid and row is not None and row.context == "postmaster")


def _files(facts: CheckFacts, limits: Limits) -> Findings:
    for error, is_fatal in refused_lines(facts):
        where = f"{error.sourcefile or 'a configuration file'}:{error.sourceline or '?'}"
        consequence = ", and the server does not start again" if is_fatal else ""
        yield CheckFinding(
            severity=Severity.CRITICAL if is_fatal else Severity.HIGH,
            says=f"{where}: {error.name or 'a line'} is not in force{consequence}: {error.error}",
            evidence=(Evidence(f"{where}: {error.error}", "pg_file_settings.error"),),
            fix=by_hand("Fix the line, then SELECT pg_reload_conf();"),
            subject=where,
        )


def _is_valid(row: Parameter, text: str) -> bool:
    """Return whether the server takes a value, as far as its range tells."""
    setting = row_with_value(row, text, row.source).setting
    if row.vartype in ("integer", "real"):
        try:
            return float(row.min_val) <= float(setting) <= float(row.max_val)
        except ValueError:
            return False
    return setting in (row.enumvals if row.vartype == "enum" else {"bool": ("on", "off")}.get(row.vartype, (setting,)))


def _hba(facts: CheckFacts, limits: Limits) -> Findings:
    answer, row = HBA.of(facts), needs.parameters(facts).visible("hba_file")
    path = "" if row is None else row.setting
    if isinstance(answer, Unavailable) and path and path in str(answer):
        # An error about the view's rights names the view, not the file.
        yield CheckFinding(
            severity=Severity.CRITICAL,
            says=f"the server cannot read {path}: it does not start again",
            evidence=(Evidence(str(answer).partition("; ")[0], HBA.source),),
            fix=by_hand(f"Make {path} readable for the server's account; then SELECT pg_reload_conf();"),
            subject=path,
        )
        return
    for _, rule in facts.have(HBA):
        if rule.error is not None:
            yield CheckFinding(
                severity=Severity.CRITICAL,
                says=f"{rule.place} is invalid: {rule.error}; the server does not start again until it is fixed",
                evidence=(Evidence(f"{rule.place}: {rule.error}", "pg_hba_file_rules.error"),),
                fix=by_hand("Fix the line, then SELECT pg_reload_conf(); until then the former rules remain in force."),
                subject=rule.place,
            )


def _end_of_life(facts: CheckFacts, limits: Limits) -> Findings:
    shipped, major = releases(), needs.major(facts)
    release = shipped.majors.get(major)
    if release is None:
        yield Unknown(f"PostgreSQL {major} is not in the list of releases of {shipped.as_of.isoformat()}")
        return
    left_days = (release.last_release - _today(facts)).days
    evidence = (
        Evidence(f"PostgreSQL {major}, last release {release.last_release.isoformat()}", _source(shipped.as_of)),
    )
    upgrade = by_hand(f"Plan the upgrade to PostgreSQL {max(shipped.majors)} with pg_upgrade or logical replication.")
    if left_days < 0:
        yield CheckFinding(
            says=f"PostgreSQL {major} has had no fixes since {release.last_release.isoformat()}",
            evidence=evidence,
            fix=upgrade,
        )
    elif left_days <= limits["days"]:
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"PostgreSQL {major} gets its last fixes in {left_days} days",
            evidence=evidence,
            fix=upgrade,
        )


def _minor(facts: CheckFacts, limits: Limits) -> Findings:
    shipped, major = releases(), needs.major(facts)
    release = shipped.majors.get(major)
    if release is None:
        yield Unknown(f"PostgreSQL {major} is not in the list of releases of {shipped.as_of.isoformat()}")
        return
    running = facts.have(needs.SERVER).version_num % 10_000
    behind = release.newest_minor - running
    if behind > 0:
        plural = "releases" if behind > 1 else "release"
        yield CheckFinding(
            severity=Severity.WARNING if behind >= limits["releases"] else Severity.INFO,
            says=f"PostgreSQL {major}.{running} is {behind} minor {plural} behind {major}.{release.newest_minor}",
            evidence=(Evidence(f"{major}.{release.newest_minor} is the newest", _source(shipped.as_of)),),
            fix=by_hand("Install the newest minor release and restart; the data files stay compatible."),
        )


def _newer(facts: CheckFacts, limits: Limits) -> Findings:
    version_num = facts.have(needs.SERVER).version_num
    sentence = newer_than_known(version_num)
    if sentence:
        yield CheckFinding(
            severity=Severity.INFO,
            says=sentence,
            evidence=(Evidence(f"server_version_num {version_num}", "pg_settings.setting"),),
            fix=by_hand(
                "Install a pgtop-tune that supports this major; until then advice and checks follow an older one."
            ),
        )


def _source(as_of: date) -> str:
    return f"postgresql.org/support/versioning as of {as_of.isoformat()}"


def _today(facts: CheckFacts) -> date:
    return datetime.fromtimestamp(facts.frames[-1].taken_at_ms / 1000, tz=UTC).date()


def _statistics(facts: CheckFacts, limits: Limits) -> Findings:
    counted_s = statistics_age_s(facts)
    if counted_s is None:
        yield Unknown("the start of the server's counters is unknown")
    elif counted_s < limits["days"] * _DAY_S:
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"the server's counters are {duration(counted_s)} old: findings based on them are less certain",
            evidence=(
                Evidence(f"{counted_s:.0f} s", "stats_reset of pg_stat_database, pg_stat_wal, pg_stat_bgwriter"),
            ),
            fix=by_hand("Check again after a day of typical load."),
        )


def _tablespaces(facts: CheckFacts, limits: Limits) -> Findings:
    parameters, there = needs.parameters(facts), {row.name for _, row in facts.have(TABLESPACES)}
    for name in _OF_TABLESPACES:
        row = parameters.find(name)
        if row is None:
            continue
        named = (elements(name, row.setting) or ()) if name in QUOTED_LISTS else (row.setting,)
        missing = [tablespace for tablespace in named if tablespace and tablespace not in there]
        if missing:
            remaining = ", ".join(
                '"' + tablespace.replace('"', '""') + '"' for tablespace in named if tablespace in there
            )
            yield CheckFinding(
                says=f"{name} is {row.shown}: tablespace {', '.join(missing)} does not exist, and files silently go "
                "to that of the database",
                evidence=(as_shown(facts, name), Evidence(f"{len(there)} tablespaces", TABLESPACES.source)),
                fix=set_parameter(row, remaining),
                subject=name,
            )


_BLAMED: Final[Mapping[str, Sequence[str]]] = {
    FILES: PARAMETERS,
    "huge pages": ("huge_pages", "huge_page_size", "shared_buffers"),
    "shared memory": ("shared_buffers",),
    "reach": ("listen_addresses", "unix_socket_directories"),
}
"""Subject of a check before a restart → parameters that it can be about; next_texts are about any that changes."""
_PRELOADED: Final = "shared_preload_libraries"
_ARCHIVING: Final = "archive_library"
_OF_NO_STATEMENT: Final = "data_directory"
"""ALTER SYSTEM refuses it."""
_OLD_RECOVERY: Final = "recovery.conf"
_SIGNALS: Final[Mapping[str, tuple[Severity, str]]] = {
    _OLD_RECOVERY: (Severity.CRITICAL, "the server does not start again"),
    "standby.signal": (Severity.HIGH, "the next start makes this primary a standby"),
    "recovery.signal": (Severity.HIGH, "the next start recovers from the archive, or fails without restore_command"),
    "backup_label": (
        Severity.HIGH,
        "the next start recovers from the checkpoint of that backup, and fails if its WAL is gone (on 14, an exclusive "
        "backup keeps this file until it ends)",
    ),
}
"""File of the data directory → what it makes of the next start of a primary. Source: xlogrecovery.c."""


def _starts(facts: CheckFacts, limits: Limits) -> Findings:
    next_texts = other_values(facts)
    for check in checks(restart_facts(facts, next_texts)):
        if check.verdict is not RestartVerdict.IMPOSSIBLE or not (next_texts or check.subject == FILES):
            continue
        names = [name for name in _BLAMED.get(check.subject, ()) if name in next_texts] or list(next_texts)
        yield CheckFinding(
            severity=Severity.CRITICAL,
            says=f"the server does not start again: {check.words.removeprefix('the server would not start: ')}",
            evidence=tuple(
                Evidence(f"{name} = {next_texts[name]} at the next start", CONFIGURED.source) for name in names
            )
            or (Evidence(check.words, "values of the configuration files"),),
            fix=_back(facts, names) or by_hand(check.hint or "Correct this before the next start."),
            subject=check.subject,
        )
    yield from _libraries(facts)
    yield from _signals(facts)
    if not isinstance(FILE_ERRORS.of(facts), Unavailable) and any(is_fatal for _, is_fatal in refused_lines(facts)):
        yield Unknown("invalid lines of the configuration files prevent a start (CFG-02); other obstacles are unknown")


def _signals(facts: CheckFacts) -> Findings:
    """Yield files in the data directory that make the next start another one."""
    is_standby = facts.have(needs.SERVER).in_recovery
    for file in start_files(facts):
        if file.part not in _SIGNALS or not file.is_there or (is_standby and file.part != _OLD_RECOVERY):
            continue
        severity, so = _SIGNALS[file.part]
        yield CheckFinding(
            severity=severity,
            says=f"the data directory contains {file.part}: {so}",
            evidence=(Evidence(f"{file.part} exists", START_FILES.source),),
            fix=by_hand(f"Move {file.part} out of the data directory before the next start, unless it is intended."),
            subject=file.part,
        )


def _back(facts: CheckFacts, names: Sequence[str]) -> Fix | None:
    """Return the fix that keeps the values in force for the next start; None without one."""
    parameters = needs.parameters(facts)
    if not names or _OF_NO_STATEMENT in names:
        return None
    fix = set_several([(parameters.row(name), parameters.shown(name)) for name in names])
    # The proposal leaves it out: the value is in force now.
    return replace(fix, parameter=None)


def _libraries(facts: CheckFacts) -> Findings:
    answer = START_FILES.of(facts)
    if isinstance(answer, Unavailable):
        yield Unknown(f"libraries and files that the next start needs: {answer}")
        return
    for file in start_files(facts):
        if file.is_library and (not file.is_there or file.built_for not in (None, needs.major(facts))):
            yield _without_library(facts, file)


def _without_library(facts: CheckFacts, file: StartFile) -> CheckFinding:
    where = "" if file.role is None and file.database is None else _scoped(file).where
    severity, consequence = Severity.CRITICAL, "no session can start"
    if file.name == _PRELOADED:
        consequence = "the server does not start again"
    elif file.name == _ARCHIVING:
        severity, consequence = Severity.HIGH, "no WAL is archived"
    elif where:
        severity, consequence = Severity.HIGH, f"no session of {where} can start"
    is_gone = f"{consequence}: library {file.part} of {file.name} is missing"
    is_foreign = f"{consequence}: library {file.part} of {file.name} is built for PostgreSQL {file.built_for}"
    evidence = (
        Evidence(f"{file.path} is built for PostgreSQL {file.built_for}", "Pg_magic_struct of the file")
        if file.is_there
        else Evidence(f"no directory of dynamic_library_path contains {file.part}", START_FILES.source)
    )
    return CheckFinding(
        severity=severity,
        says=is_foreign if file.is_there else is_gone,
        evidence=(evidence,),
        fix=_scoped(file).fix if where else _shorter(facts, file),
        subject=f"{where} {file.name} {file.part}".strip(),
    )


def _scoped(file: StartFile) -> Scoped:
    return Scoped(database=file.database, role=file.role, name=file.name, value=file.value)


def _shorter(facts: CheckFacts, file: StartFile) -> Fix:
    row = needs.parameters(facts).row(file.name)
    value = other_values(facts).get(file.name, file.value)
    named = elements(file.name, value) or (value,)
    return set_parameter(row, ", ".join(quoted(library) for library in named if library != file.part))


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="CFG-01",
        group=_GROUP,
        title="parameters pending a restart",
        why="The next restart, planned or not, starts the server with settings that were not tested.",
        page="view-pg-settings.html",
        needs=(needs.PARAMETERS,),
        look=_pending,
    ),
    Check(
        id="CFG-02",
        group=_GROUP,
        title="errors in configuration files",
        why="A running server ignores an invalid line; a starting server may refuse it.",
        severity=Severity.HIGH,
        page="view-pg-file-settings.html",
        needs=(needs.PARAMETERS, FILE_ERRORS),
        asks=(CONFIGURED,),
        look=_files,
    ),
    Check(
        id="CFG-03",
        group=_GROUP,
        title="errors in pg_hba.conf",
        why="One invalid line blocks all changes of the file, and the start of the server.",
        severity=Severity.HIGH,
        page="view-pg-hba-file-rules.html",
        needs=(needs.PARAMETERS,),
        asks=(HBA,),
        look=_hba,
    ),
    Check(
        id="CFG-04",
        group=_GROUP,
        title="end of life",
        why="A major version without fixes keeps its known vulnerabilities.",
        page="upgrading.html",
        needs=(needs.SERVER,),
        look=_end_of_life,
        thresholds=(Threshold("days", 180, "d", "an info finding with this many days left"),),
    ),
    Check(
        id="CFG-05",
        group=_GROUP,
        title="minor version",
        why="Minor releases contain only fixes, some against data loss.",
        page="upgrading.html",
        needs=(needs.SERVER,),
        look=_minor,
        thresholds=(Threshold("releases", 2, "", "a warning when this many releases behind"),),
    ),
    Check(
        id="CFG-06",
        group=_GROUP,
        title="age of the statistics",
        why="Counters that cover an hour miss the nightly jobs.",
        severity=Severity.INFO,
        page="monitoring-stats.html",
        needs=(needs.SERVER,),
        look=_statistics,
        thresholds=(Threshold("days", 1, "d", "younger counters are an info finding"),),
    ),
    Check(
        id="CFG-07",
        group=_GROUP,
        title="unknown major version",
        why="Views and parameters of a newer major may have silently changed their meaning.",
        severity=Severity.INFO,
        page="release.html",
        needs=(needs.SERVER,),
        look=_newer,
    ),
    Check(
        id="CFG-10",
        group=_GROUP,
        title="missing tablespaces",
        why="Tables and temporary files fill the disk that the tablespace was meant to spare.",
        page="runtime-config-client.html#GUC-TEMP-TABLESPACES",
        needs=(needs.PARAMETERS, TABLESPACES, SCOPED),
        look=also_scoped(_tablespaces, *_OF_TABLESPACES),
    ),
    Check(
        id="CFG-11",
        group="configuration",
        title="the next start",
        why="A value that a reload accepts and a start refuses keeps the server down after a restart or a crash.",
        severity=Severity.CRITICAL,
        page="runtime-config-client.html#RUNTIME-CONFIG-CLIENT-PRELOAD",
        needs=(needs.SERVER, needs.PARAMETERS, CONFIGURED),
        asks=(START_FILES, HBA, CONTROL, FILE_ERRORS),
        look=_starts,
    ),
)
