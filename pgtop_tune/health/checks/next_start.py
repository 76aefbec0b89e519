"""Values that wait for the next start: whether the server would start, and let sessions in, with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.changes.model.change_set import RestartVerdict
from pgtop_tune.changes.start.checks import FILES, checks
from pgtop_tune.changes.start.rules import PARAMETERS
from pgtop_tune.changes.statements import elements
from pgtop_tune.health import needs
from pgtop_tune.health.at_next_start import other_values, restart_facts, start_files
from pgtop_tune.health.check import Check, Evidence, Finding, Fix, Limits, Severity, Unknown
from pgtop_tune.health.checks.configuration import refused_lines
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import set_parameter, set_parameters, words
from pgtop_tune.health.questions import CONFIGURED, CONTROL, FILE_ERRORS, HBA, START_FILES, StartFile
from pgtop_tune.health.rules import Scoped
from pgtop_tune.model.absence import Unavailable

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
        "a start recovers from the checkpoint of that backup, and fails where its WAL is gone (an exclusive backup of "
        "14 has it until it ends)",
    ),
}
"""File of the data directory → what it makes of the next start of a primary. Source: xlogrecovery.c."""


def _starts(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    next_texts = other_values(facts)
    for check in checks(restart_facts(facts, next_texts)):
        if check.verdict is not RestartVerdict.IMPOSSIBLE or not (next_texts or check.subject == FILES):
            continue
        names = [name for name in _BLAMED.get(check.subject, ()) if name in next_texts] or list(next_texts)
        yield Finding(
            severity=Severity.CRITICAL,
            says=f"the server does not start again: {check.words.removeprefix('the server would not start: ')}",
            evidence=tuple(
                Evidence(f"{name} = {next_texts[name]} at the next start", CONFIGURED.source) for name in names
            )
            or (Evidence(check.words, "values of the configuration files"),),
            fix=_back(facts, names) or words(check.hint or "Correct this before the next start."),
            subject=check.subject,
        )
    yield from _libraries(facts)
    yield from _signals(facts)
    if not isinstance(FILE_ERRORS.of(facts), Unavailable) and any(is_fatal for _, is_fatal in refused_lines(facts)):
        yield Unknown("a start fails for lines of the configuration files (CFG-02); what else stops it is not known")


def _signals(facts: CheckFacts) -> Iterator[Finding]:
    """Files in the data directory that make the next start another one."""
    is_standby = facts.have(needs.SERVER).in_recovery
    for file in start_files(facts):
        if file.part not in _SIGNALS or not file.is_there or (is_standby and file.part != _OLD_RECOVERY):
            continue
        severity, so = _SIGNALS[file.part]
        yield Finding(
            severity=severity,
            says=f"the data directory has {file.part}: {so}",
            evidence=(Evidence(f"{file.part} is there", START_FILES.source),),
            fix=words(f"Move {file.part} out of the data directory before the next start, unless it is meant."),
            subject=file.part,
        )


def _back(facts: CheckFacts, names: Sequence[str]) -> Fix | None:
    """The values that are in force, for the next start as well."""
    parameters = needs.parameters(facts)
    if not names or _OF_NO_STATEMENT in names:
        return None
    fix = set_parameters([(parameters.row(name), parameters.shown(name)) for name in names])
    # Nothing to propose: it is what is there now.
    return replace(fix, parameter=None)


def _libraries(facts: CheckFacts) -> Iterator[Finding | Unknown]:
    answer = START_FILES.of(facts)
    if isinstance(answer, Unavailable):
        yield Unknown(f"whether libraries and files of the next start are there: {answer}")
        return
    for file in start_files(facts):
        if file.is_library and (not file.is_there or file.built_for not in (None, needs.major(facts))):
            yield _without_library(facts, file)


def _without_library(facts: CheckFacts, file: StartFile) -> Finding:
    where = "" if file.role is None and file.database is None else _scoped(file).where
    severity, so = Severity.CRITICAL, "no session can start"
    if file.name == _PRELOADED:
        so = "the server does not start again"
    elif file.name == _ARCHIVING:
        severity, so = Severity.HIGH, "no WAL is archived"
    elif where:
        severity, so = Severity.HIGH, f"no session of {where} can start"
    is_gone = f"{so}: there is no library {file.part}, which {file.name} names"
    is_foreign = f"{so}: library {file.part}, which {file.name} names, is made for PostgreSQL {file.built_for}"
    seen = (
        Evidence(f"{file.path} is made for PostgreSQL {file.built_for}", "Pg_magic_struct of the file")
        if file.is_there
        else Evidence(f"{file.part} is in none of the directories of dynamic_library_path", START_FILES.source)
    )
    return Finding(
        severity=severity,
        says=is_foreign if file.is_there else is_gone,
        evidence=(seen,),
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
