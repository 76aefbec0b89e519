"""Parameters as the server is configured, where the session that asks has others of its role or its database.

pg_settings shows what the asking session has: a value that ALTER DATABASE or ALTER ROLE sets stands in the place of the
server's, in `setting` and in `reset_val`. What the server has is then found on its command line, else in its files,
else it is the default. Source: pg_settings.source; guc.c (GucSource); postmaster.c (CreateOptsFile).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import MB
from pgtop_tune.changes.start.checks import RestartFacts, shared_memory_bytes
from pgtop_tune.changes.start.next_start import AT_START, NextStart, StartValue, ValuesAfter
from pgtop_tune.changes.start.rules import start_refusal
from pgtop_tune.health import needs
from pgtop_tune.health.facts import Answers, CheckFacts, Missing
from pgtop_tune.health.machine_figures import huge_pages_needed, huge_pages_used, memory
from pgtop_tune.health.needs import is_of_session
from pgtop_tune.health.questions import CONFIGURED, CONTROL, HBA, START_FILES, ConfiguredLine, StartFile, StartOptions
from pgtop_tune.health.server_files import settings_of_primary
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.parameter_values import parse, parse_bool, show
from pgtop_tune.model.postgres import Parameter, ParameterSample, PostgresSample

_FILE: Final = "configuration file"
_COMMAND_LINE: Final = "command line"
_ARGUMENT: Final = re.compile(r'"(?:--|-c" "|-c)(?P<name>[\w.-]+)=(?P<value>[^"]*)"')


def as_configured(
    sample: ParameterSample, lines: Answers[Any] | Unavailable, options: Answers[Any] | Unavailable
) -> ParameterSample:
    """Return the parameters as sessions have them without settings of a role or database, with those of ALTER SYSTEM.

    Args:
        sample: Parameters as our session has them.
        lines: `CONFIGURED`; without it a row that is the session's own stays so.
        options: `START_OPTIONS`; where they cannot be read the server is taken to have none.
    """
    if isinstance(lines, Unavailable):
        return sample
    files: Mapping[str, ConfiguredLine] = {line.name: line for _, line in lines}
    started_with = {} if isinstance(options, Unavailable) else _given(options)
    return replace(sample, parameters=tuple(_configured(row, files, started_with) for row in sample.parameters))


def row_with_value(parameter: Parameter, text: str, source: str, file: str = "") -> Parameter:
    """Return a row with a value as it is typed or stored; one that cannot be parsed stays a text."""
    setting = text_shown = text
    try:
        if parameter.vartype == "bool":
            setting = text_shown = parse_bool(text)
        elif parameter.vartype in ("integer", "real"):
            integer = parameter.vartype == "integer"
            number = parse(text, parameter.unit, integer=integer)
            # A mode of files is in octal digits.
            is_mode = integer and parameter.setting.startswith("0") and parameter.setting != "0"
            setting = f"{int(number):04o}" if is_mode else f"{number:.0f}" if integer else f"{number:g}"
            text_shown = setting if is_mode else show(number, parameter.unit, integer=integer)
        elif parameter.vartype == "enum":
            setting = text_shown = _word(parameter, text)
    except UsageProblem:
        pass
    return replace(parameter, setting=setting, shown=text_shown, reset_val=setting, source=source, sourcefile=file)


def _word(parameter: Parameter, text: str) -> str:
    """Return the word of an enum: case does not count, and some take other words for on and off."""
    word = text.strip().lower()
    if word in parameter.enumvals:
        return word
    switch = parse_bool(word)
    return switch if switch in parameter.enumvals else word


def _configured(row: Parameter, files: Mapping[str, ConfiguredLine], started_with: Mapping[str, str]) -> Parameter:
    name = row.name.lower()
    line = files.get(name)
    row = replace(row, stored=None if line is None else line.stored)
    if not is_of_session(row):
        return row
    if name in started_with:
        return row_with_value(row, started_with[name], _COMMAND_LINE)
    if line is not None and line.setting is not None:
        return row_with_value(row, line.setting, _FILE, line.place or "")
    return row_with_value(row, row.boot_val, "default")


def _given(options: Answers[Any]) -> Mapping[str, str]:
    """Return the parameters of the command line; the last of each counts."""
    values: dict[str, str] = {}
    for _, row in options:
        assert isinstance(row, StartOptions)
        for argument in _ARGUMENT.finditer(row.text):
            values[argument["name"].replace("-", "_").lower()] = argument["value"]
    return values


def with_parameters(frame: Frame, sample: ParameterSample) -> Frame:
    """Return a frame of a server with other parameters."""
    assert isinstance(frame.postgres, PostgresSample)
    return replace(frame, postgres=replace(frame.postgres, parameters=sample))


_SHARED: Final = "shared_memory_size"
_READ_AT_START: Final = frozenset({"postmaster", "sighup"})
_NOT_TRIED: Final = Unavailable(Reason.SWITCHED_OFF, "a check runs no program of the server")


def other_values(facts: CheckFacts) -> dict[str, str]:
    """Return the values of parameters that the next start reads and that are others now, as they are written.

    Raises:
        Missing: The parameters, or the configuration files, were not seen.
    """
    written = {line.name: line.next for _, line in facts.have(CONFIGURED)}
    next_texts = {}
    for row in facts.have(needs.PARAMETERS).parameters:
        if row.context not in _READ_AT_START or row.source in AT_START or is_of_session(row):
            continue
        value = written.get(row.name.lower(), row.boot_val if row.pending_restart else None)
        if value is not None and row_with_value(row, value, row.source).setting != row.setting:
            next_texts[row.name] = value
    return next_texts


def with_values(sample: ParameterSample, texts: Mapping[str, str]) -> ParameterSample:
    """Return parameters with other values, and the size of the shared memory that comes with them.

    Args:
        sample: Parameters now.
        texts: Values by name, as typed or written.
    """
    now = {row.name: row for row in sample.parameters}
    size = shared_memory_bytes(RestartFacts(major=0, values=ValuesAfter(now, texts), dry=_NOT_TRIED))
    sizes = {} if size is None or _SHARED not in now else {_SHARED: f"{size / MB:.0f}MB"}
    changed = {name: row_with_value(now[name], text, now[name].source) for name, text in {**sizes, **texts}.items()}
    return replace(sample, parameters=tuple({**now, **changed}.values()))


def at_next_start(facts: CheckFacts) -> tuple[CheckFacts, Mapping[str, str]] | None:
    """Return the facts with the values that the next start reads, and those of them that are others now; None without
    any, and where they are not known."""
    try:
        next_texts, sample = other_values(facts), facts.have(needs.PARAMETERS)
    except Missing:
        return None
    if not next_texts:
        return None
    after = with_values(sample, next_texts)
    # Whether the server then has huge pages, only its start shows.
    rows = tuple(row for row in after.parameters if row.name != "huge_pages_status")
    frame = with_parameters(facts.frames[-1], replace(after, parameters=rows))
    return replace(facts, frames=(*facts.frames[:-1], frame)), next_texts


def restart_facts(facts: CheckFacts, next_texts: Mapping[str, str]) -> RestartFacts:
    """Return what the checks before a restart look at.

    Args:
        facts: Facts of the check.
        next_texts: As `other_values` has them.

    Raises:
        Missing: The server or its parameters were not seen.
    """
    now = {row.name: row for row in facts.have(needs.PARAMETERS).parameters}
    start = next_start(facts, next_texts) if isinstance(facts.next_start, Unavailable) else facts.next_start
    server, major = facts.have(needs.SERVER), needs.major(facts)
    values = ValuesAfter(now, next_texts)
    page_bytes = values.number("huge_page_size")
    memory_bytes, group_bytes = _memory_bytes(facts)
    return RestartFacts(
        major=major,
        values=values,
        dry=_NOT_TRIED,
        rule_refusal=start_refusal(start, major, tried=False),
        memory_bytes=memory_bytes,
        group_bytes=group_bytes,
        pool=_pool(facts, int(page_bytes or 0)),
        held_pages=_held_pages(facts),
        in_recovery=server.in_recovery,
        primary=_primary(facts, server.system_identifier) if server.in_recovery else None,
        here=not isinstance(needs.MEMORY.of(facts), Unavailable),
    )


def next_start(facts: CheckFacts, next_texts: Mapping[str, str]) -> NextStart:
    """Return the values and files of the next start, without what only the server's machine can say.

    Raises:
        Missing: The parameters were not seen.
    """
    rows = {
        row.name: StartValue(
            unit=row.unit,
            running=row.setting,
            now=next_texts.get(row.name, row.setting),
            without=row.boot_val,
            is_fixed=row.source in AT_START,
        )
        for row in facts.have(needs.PARAMETERS).parameters
    }
    return NextStart(rows=rows, changes={}, directories=_directories(facts), counts=_counts(facts))


def _directories(facts: CheckFacts) -> dict[str, bool | None]:
    return {
        file.part: file.is_directory if file.is_there else None for file in start_files(facts) if not file.is_library
    }


def start_files(facts: CheckFacts) -> tuple[StartFile, ...]:
    """Return files and libraries that were looked for; none where they could not be."""
    files = START_FILES.of(facts)
    return () if isinstance(files, Unavailable) else tuple(file for _, file in files)


def _counts(facts: CheckFacts) -> dict[str, int]:
    counts = {}
    slots, horizon, rules = needs.SLOTS.of(facts), needs.HORIZON.of(facts), HBA.of(facts)
    if not isinstance(slots, Unavailable):
        counts["slots"] = len(slots.slots)
        counts["logical_slots"] = sum(slot.slot_type == "logical" for slot in slots.slots)
    if not isinstance(horizon, Unavailable):
        counts["prepared"] = len(horizon.prepared)
    if not isinstance(rules, Unavailable):
        counts["md5_lines"] = sum(rule.method == "md5" for _, rule in rules)
    return counts


def _memory_bytes(facts: CheckFacts) -> tuple[int | None, int | None]:
    """Return the memory of the machine, and the limit of the server's group where that is less."""
    try:
        there = memory(facts)
    except Missing:
        return None, None
    return facts.have(needs.HOST).memory_bytes, there.limit_bytes if there.of_group else None


def _pool(facts: CheckFacts, page_bytes: int) -> HugePages | None:
    """Return the pool of a page size; of the kernel's default size for 0."""
    memory_sample, machine = needs.MEMORY.of(facts), needs.MACHINE.of(facts)
    if isinstance(memory_sample, Unavailable):
        return None
    usual = None if isinstance(machine, Unavailable) else machine.huge_page_bytes
    pool_page_bytes = page_bytes or usual or min((pool.page_bytes for pool in memory_sample.huge_pages), default=None)
    return next((pool for pool in memory_sample.huge_pages if pool.page_bytes == pool_page_bytes), None)


def _held_pages(facts: CheckFacts) -> int:
    """Return the huge pages that the running server may give back."""
    try:
        pool = _pool(facts, int(needs.parameters(facts).number("huge_page_size")))
        may_hold = pool is not None and huge_pages_used(facts).used is not False
        return huge_pages_needed(facts, pool.page_bytes) if pool is not None and may_hold else 0
    except Missing:
        return 0


def _primary(facts: CheckFacts, system_identifier: str) -> dict[str, int] | None:
    content = CONTROL.of(facts)
    if isinstance(content, Unavailable):
        return None
    try:
        recorded = [settings_of_primary(row.content, system_identifier) for _, row in content]
    except ValueError:
        return None
    return {name: int(value) for name, value in recorded[0].items() if value.isdecimal()} if recorded else None
