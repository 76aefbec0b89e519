"""Configuration that is not in force, the server's release and its support, and how old its statistics are."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from functools import cache
from importlib.resources import files
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import duration
from pgtop_tune.changes.start.next_start import AT_START
from pgtop_tune.changes.statements import QUOTED_LISTS, elements
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.configured import with_value
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import set_parameter, words
from pgtop_tune.health.judge import statistics_age_s
from pgtop_tune.health.questions import CONFIGURED, FILE_ERRORS, HBA, SCOPED, TABLESPACES, FileError
from pgtop_tune.health.rules import also_scoped, setting
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter, newer_than_known

_OF_TABLESPACES: Final = ("temp_tablespaces", "default_tablespace")

# Which releases of PostgreSQL there are and for how long they get fixes, as of a day: data/releases.toml.


class Release(Struct, frozen=True):
    """A major version.

    Attributes:
        newest_minor: 6 of 18.6.
        last_release: The day of its last fixes.
    """

    newest_minor: int
    last_release: date


class Releases(Struct, frozen=True):
    """What was known on a day.

    Attributes:
        as_of: That day.
        majors: By major version.
    """

    as_of: date
    majors: Mapping[int, Release]

    def of(self, major: int) -> Release | None:
        """A major version; None for one that was not known."""
        return self.majors.get(major)


@cache
def releases() -> Releases:
    """The file that is shipped. Source: postgresql.org, "Versioning Policy"."""
    text = files("pgtop_tune.health").joinpath("data", "releases.toml").read_text(encoding="utf-8")
    told = tomllib.loads(text)
    return Releases(told["as_of"], {int(major): Release(**row) for major, row in told["majors"].items()})


_GROUP: Final = "configuration"
_SHOWN: Final = 10
_DAY_S: Final = 86_400


def _pending(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    if needs.parameters(facts).are_hidden:
        yield Unknown(
            "whether parameters wait that are hidden from this role; GRANT pg_read_all_settings grants access"
        )
    waiting = [row for row in facts.have(needs.PARAMETERS).parameters if row.pending_restart]
    if waiting:
        names = ", ".join(row.name for row in waiting[:_SHOWN]) + (" …" if len(waiting) > _SHOWN else "")
        yield Finding(
            severity=Severity.WARNING,
            says=f"{len(waiting)} {'parameters wait' if len(waiting) > 1 else 'parameter waits'} for a restart: "
            f"{names}",
            evidence=tuple(
                Evidence(f"{row.name} is still {row.shown}", "pg_settings.pending_restart") for row in waiting[:_SHOWN]
            ),
            fix=words("Restart the server, or undo the change in the file and reload."),
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
        # A file may say another value than the command line, which wins: Patroni's way.
        if row is not None and (row.pending_restart or (is_valid and row.source in AT_START)):
            continue
        yield error, not (is_valid and row is not None and row.context == "postmaster")


def _files(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    for error, is_fatal in refused_lines(facts):
        where = f"{error.sourcefile or 'a configuration file'}:{error.sourceline or '?'}"
        so = ", and the server does not start again" if is_fatal else ""
        yield Finding(
            severity=Severity.CRITICAL if is_fatal else Severity.HIGH,
            says=f"{where}: {error.name or 'a line'} is not in force{so}: {error.error}",
            evidence=(Evidence(f"{where}: {error.error}", "pg_file_settings.error"),),
            fix=words("Fix the line, then SELECT pg_reload_conf();"),
            subject=where,
        )


def _is_valid(row: Parameter, text: str) -> bool:
    """Return whether the server takes a value, as far as its range tells."""
    setting = with_value(row, text, row.source).setting
    if row.vartype in ("integer", "real"):
        try:
            return float(row.min_val) <= float(setting) <= float(row.max_val)
        except ValueError:
            return False
    return setting in (row.enumvals if row.vartype == "enum" else {"bool": ("on", "off")}.get(row.vartype, (setting,)))


def _hba(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    answer, row = HBA.of(facts), needs.parameters(facts).visible("hba_file")
    path = "" if row is None else row.setting
    if isinstance(answer, Unavailable) and path and path in str(answer):
        # Who may not see the view is told of the view, not of the file.
        yield Finding(
            severity=Severity.CRITICAL,
            says=f"the server cannot read {path}: it does not start again",
            evidence=(Evidence(str(answer).partition("; ")[0], HBA.source),),
            fix=words(f"Give {path} to the server's account, and let it read it; then SELECT pg_reload_conf();"),
            subject=path,
        )
        return
    for _, rule in facts.have(HBA):
        if rule.error is not None:
            yield Finding(
                severity=Severity.CRITICAL,
                says=f"{rule.place} is wrong: {rule.error}; until it is mended the server does not start again",
                evidence=(Evidence(f"{rule.place}: {rule.error}", "pg_hba_file_rules.error"),),
                fix=words("Fix the line and SELECT pg_reload_conf(); until then all rules stay as they were before."),
                subject=rule.place,
            )


def _end_of_life(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    known, major = releases(), needs.major(facts)
    release = known.of(major)
    if release is None:
        yield Unknown(f"PostgreSQL {major} is not among the releases of {known.as_of.isoformat()}")
        return
    left_days = (release.last_release - _today(facts)).days
    evidence = (Evidence(f"PostgreSQL {major}, last release {release.last_release.isoformat()}", _source(known.as_of)),)
    upgrade = words(f"Plan the upgrade to PostgreSQL {max(known.majors)} with pg_upgrade or logical replication.")
    if left_days < 0:
        yield Finding(
            severity=Severity.WARNING,
            says=f"PostgreSQL {major} has had no fixes since {release.last_release.isoformat()}",
            evidence=evidence,
            fix=upgrade,
        )
    elif left_days <= limits["days"]:
        yield Finding(
            severity=Severity.INFO,
            says=f"PostgreSQL {major} gets its last fixes in {left_days} days",
            evidence=evidence,
            fix=upgrade,
        )


def _minor(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    known, major = releases(), needs.major(facts)
    release = known.of(major)
    if release is None:
        yield Unknown(f"PostgreSQL {major} is not among the releases of {known.as_of.isoformat()}")
        return
    running = facts.have(needs.SERVER).version_num % 10_000
    behind = release.newest_minor - running
    if behind > 0:
        plural = "releases" if behind > 1 else "release"
        yield Finding(
            severity=Severity.WARNING if behind >= limits["releases"] else Severity.INFO,
            says=f"PostgreSQL {major}.{running} is {behind} {plural} of fixes behind {major}.{release.newest_minor}",
            evidence=(Evidence(f"{major}.{release.newest_minor} is the newest", _source(known.as_of)),),
            fix=words("Install the newest minor release and restart; the data stay as they are."),
        )


def _newer(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    version_num = facts.have(needs.SERVER).version_num
    sentence = newer_than_known(version_num)
    if sentence:
        yield Finding(
            severity=Severity.INFO,
            says=sentence,
            evidence=(Evidence(f"server_version_num {version_num}", "pg_settings.setting"),),
            fix=words(
                "Install a version of pgtop-tune that knows it; until then advice and checks follow the older one."
            ),
        )


def _source(as_of: date) -> str:
    return f"postgresql.org/support/versioning as of {as_of.isoformat()}"


def _today(facts: CheckFacts) -> date:
    return datetime.fromtimestamp(facts.frames[-1].taken_at_ms / 1000, tz=UTC).date()


def _statistics(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    counted_s = statistics_age_s(facts)
    if counted_s is None:
        yield Unknown("the start of the server's counters is unknown")
    elif counted_s < limits["days"] * _DAY_S:
        yield Finding(
            severity=Severity.INFO,
            says=f"the server's counters are {duration(counted_s)} old: findings based on them are hints",
            evidence=(
                Evidence(f"{counted_s:.0f} s", "stats_reset of pg_stat_database, pg_stat_wal, pg_stat_bgwriter"),
            ),
            fix=words("Check again after a day of typical load."),
        )


def _tablespaces(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    known, there = needs.parameters(facts), {row.name for _, row in facts.have(TABLESPACES)}
    for name in _OF_TABLESPACES:
        row = known.find(name)
        if row is None:
            continue
        named = (elements(name, row.setting) or ()) if name in QUOTED_LISTS else (row.setting,)
        gone = [each for each in named if each and each not in there]
        if gone:
            left = ", ".join('"' + each.replace('"', '""') + '"' for each in named if each in there)
            yield Finding(
                severity=Severity.WARNING,
                says=f"{name} is {row.shown}: there is no tablespace {', '.join(gone)}, and without a word files go to "
                "the one of the database",
                evidence=(setting(facts, name), Evidence(f"{len(there)} tablespaces", TABLESPACES.source)),
                fix=set_parameter(row, left),
                subject=name,
            )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="CFG-01",
        group=_GROUP,
        title="parameters pending a restart",
        why="The next restart, planned or not, starts a server with other settings than the tested one.",
        severity=Severity.WARNING,
        page="view-pg-settings.html",
        needs=(needs.PARAMETERS,),
        look=_pending,
    ),
    Check(
        id="CFG-02",
        group=_GROUP,
        title="errors in configuration files",
        why="A running server ignores such a line; a starting one may refuse it.",
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
        why="One wrong line blocks all changes of the file, and the start of the server.",
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
        severity=Severity.WARNING,
        page="upgrading.html",
        needs=(needs.SERVER,),
        look=_end_of_life,
        thresholds=(Threshold("days", 180, "d", "or fewer left are worth a note"),),
    ),
    Check(
        id="CFG-05",
        group=_GROUP,
        title="minor version",
        why="Minor releases contain only fixes, some against data loss.",
        severity=Severity.WARNING,
        page="upgrading.html",
        needs=(needs.SERVER,),
        look=_minor,
        thresholds=(Threshold("releases", 2, "", "behind is a warning"),),
    ),
    Check(
        id="CFG-06",
        group=_GROUP,
        title="age of the statistics",
        why="Counters that cover an hour miss the jobs of the night.",
        severity=Severity.INFO,
        page="monitoring-stats.html",
        needs=(needs.SERVER,),
        look=_statistics,
        thresholds=(Threshold("days", 1, "d", "younger is worth a note"),),
    ),
    Check(
        id="CFG-07",
        group=_GROUP,
        title="unknown major version",
        why="Views and parameters of a newer major may have changed their meaning without a word.",
        severity=Severity.INFO,
        page="release.html",
        needs=(needs.SERVER,),
        look=_newer,
    ),
    Check(
        id="CFG-10",
        group=_GROUP,
        title="tablespaces that are not there",
        why="Tables and temporary files fill the disk that a tablespace was to keep them from.",
        severity=Severity.WARNING,
        page="runtime-config-client.html#GUC-TEMP-TABLESPACES",
        needs=(needs.PARAMETERS, TABLESPACES, SCOPED),
        look=also_scoped(_tablespaces, *_OF_TABLESPACES),
    ),
)
