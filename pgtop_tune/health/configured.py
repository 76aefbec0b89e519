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
from pgtop_tune.health.facts import Answer
from pgtop_tune.health.questions import ConfiguredLine, StartOptions
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.parameter_values import parse, parse_bool, show
from pgtop_tune.model.postgres import Parameter, ParameterSample

_FILE: Final = "configuration file"
_COMMAND_LINE: Final = "command line"
_OF_SESSION: Final = frozenset({"global", "database", "user", "database user", "client", "session"})
"""pg_settings.source of values that the session has and the server has not."""
_ARGUMENT: Final = re.compile(r'"(?:--|-c" "|-c)(?P<name>[\w.-]+)=(?P<value>[^"]*)"')


def is_of_session(parameter: Parameter) -> bool:
    """Whether a row tells what the session that asked has, and not what the server has."""
    return parameter.source in _OF_SESSION


def as_configured(
    sample: ParameterSample, lines: Answer[Any] | Unavailable, options: Answer[Any] | Unavailable
) -> ParameterSample:
    """The parameters as sessions have them for which nobody has set anything, with what ALTER SYSTEM has stored.

    Args:
        sample: As our session has them.
        lines: `CONFIGURED`; without it a row that is the session's own stays so.
        options: `START_OPTIONS`; where they cannot be read the server is taken to have none.
    """
    if isinstance(lines, Unavailable):
        return sample
    files: Mapping[str, ConfiguredLine] = {line.name: line for _, line in lines}
    given = {} if isinstance(options, Unavailable) else _given(options)
    return replace(sample, parameters=tuple(_configured(row, files, given) for row in sample.parameters))


def with_value(parameter: Parameter, text: str, source: str, place: str = "") -> Parameter:
    """A row with a value as it is typed or stored; one that makes no sense to us stays a text."""
    setting = shown = text
    try:
        if parameter.vartype == "bool":
            setting = shown = parse_bool(text)
        elif parameter.vartype in ("integer", "real"):
            integer = parameter.vartype == "integer"
            number = parse(text, parameter.unit, integer=integer)
            setting, shown = (
                (f"{number:.0f}" if integer else f"{number:g}"),
                show(number, parameter.unit, integer=integer),
            )
        elif parameter.vartype == "enum":
            setting = shown = _word(parameter, text)
    except UsageProblem:
        pass
    return replace(parameter, setting=setting, shown=shown, reset_val=setting, source=source, sourcefile=place)


def _word(parameter: Parameter, text: str) -> str:
    """The word of an enum: case does not count, and some take other words for on and off."""
    word = text.strip().lower()
    if word in parameter.enumvals:
        return word
    switch = parse_bool(word)
    return switch if switch in parameter.enumvals else word


def _configured(row: Parameter, files: Mapping[str, ConfiguredLine], given: Mapping[str, str]) -> Parameter:
    name = row.name.lower()
    line = files.get(name)
    row = replace(row, stored=None if line is None else line.stored)
    if not is_of_session(row):
        return row
    if name in given:
        return with_value(row, given[name], _COMMAND_LINE)
    if line is not None and line.setting is not None:
        return with_value(row, line.setting, _FILE, line.place or "")
    return with_value(row, row.boot_val, "default")


def _given(options: Answer[Any]) -> Mapping[str, str]:
    """Parameters of the command line; the last of each counts."""
    found: dict[str, str] = {}
    for _, row in options:
        assert isinstance(row, StartOptions)
        for argument in _ARGUMENT.finditer(row.text):
            found[argument["name"].replace("-", "_").lower()] = argument["value"]
    return found
