"""NAME=VALUE words of `set`, checked before the server is asked. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final

from pgtop_tune.advice.knobs.system import BY_NAME, knob_of
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import SYSTEM, Scope, ScopeKind, WantedParameter, WantedSetting

LOAD: Final = "load"
"""Scope of the sessions of a load to come: the server stays as it is."""
SESSION_CONTEXTS: Final = frozenset({"user", "superuser", "backend", "superuser-backend"})
"""Values of pg_settings.context of parameters that a session can set for itself."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(?:\.[A-Za-z_][A-Za-z0-9_$]*)*", re.ASCII)
_SCOPE_PART: Final = re.compile(r'\s*(role|database)\s*=\s*(?:"((?:[^"]|"")+)"|([^",][^,]*?))\s*(?:,(?!$)|$)')
_SCOPE: Final = re.compile(f"(?:{_SCOPE_PART.pattern})+")
_SCOPES: Final = "system, role=NAME, database=NAME, role=NAME,database=NAME or load"


_LINKS: Final = frozenset({"=", "to", "TO", "To"})
_SAME_WORD: Final = re.compile(rf"({_NAME.pattern})\s+(?:to\s+|(?!=))(.+)", re.ASCII | re.IGNORECASE | re.DOTALL)


def as_assignments(typed_words: Sequence[str]) -> list[str]:
    """Return the NAME=VALUE words of "NAME=VALUE", "NAME VALUE", "NAME to VALUE" and "NAME = VALUE".

    A value that ends with a comma goes on in the next word, as SET of SQL has lists.

    Raises:
        UsageProblem: A name has no value, or it is not clear whether a word is a value or the next NAME=VALUE.
    """
    remaining, assignments = list(typed_words), list[str]()
    while remaining:
        word = remaining.pop(0)
        if "=" in word.lstrip("="):
            assignments.append(word)
            continue
        if match := _SAME_WORD.fullmatch(word):
            assignments.append(f"{match[1]}={match[2]}")
            continue
        linked = remaining[:1] and remaining[0] in _LINKS
        if linked:
            remaining.pop(0)
        value = remaining.pop(0) if remaining else ""
        if not value or (not linked and "=" in value.lstrip("=")):
            raise UsageProblem(
                f"{word!r} has no value",
                f"pass {word}=VALUE, or `pgtop-tune parameters {word}` to see it; a database needs -d",
            )
        if not linked:
            value = value.removeprefix("=")
        while value.endswith(",") and remaining:
            value = f"{value} {remaining.pop(0)}"
        assignments.append(f"{word}={value}")
    return assignments


def wanted_parameters(assignments: Sequence[str], scope: Scope) -> tuple[WantedParameter, ...]:
    """Return the parameters of NAME=VALUE words.

    Args:
        assignments: NAME=VALUE words. VALUE is the text after the first "="; it loses leading blanks where NAME ends
            in a blank. `model.parameter_values.without_blanks` removes trailing blanks that mean nothing.

    Raises:
        UsageProblem: A word has no =, or its name cannot be that of a parameter.
    """
    parameters = []
    for word in assignments:
        _check_text(word)
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageProblem(f"{word!r} is not NAME=VALUE", "as in max_wal_size=4GB; `reset` takes only names")
        parameters.append(WantedParameter(checked_name(name.strip()), assigned(name, value), scope))
    return tuple(parameters)


def assigned(name: str, value: str) -> str:
    """Return the value of "NAME = VALUE" without the blanks before it; "NAME= VALUE" keeps them."""
    return value.lstrip() if name.endswith(" ") else value


def checked_name(name: str) -> str:
    """Return the name unchanged. Raises UsageProblem where no parameter can have this name."""
    if not _NAME.fullmatch(name):
        near = nearest_settings([name])
        hint = f"did you mean {' or '.join(near)}?" if near else "as in max_wal_size, or pg_stat_statements.max"
        raise UsageProblem(f"{name!r} is not the name of a parameter", hint)
    return name


def scope_of(text: str) -> Scope | None:
    """Return the scope of --scope; None is the session of the next load. Raises UsageProblem for another word."""
    _check_text(text)
    if text == LOAD:
        return None
    if text == "system":
        return SYSTEM
    parts = _SCOPE_PART.findall(text) if _SCOPE.fullmatch(text) else []
    names = {kind: quoted.replace('""', '"') or plain for kind, quoted, plain in parts}
    kinds = {
        frozenset({"role"}): ScopeKind.ROLE,
        frozenset({"database"}): ScopeKind.DATABASE,
        frozenset({"role", "database"}): ScopeKind.ROLE_IN_DATABASE,
    }
    kind = kinds.get(frozenset(names))
    if kind is None or len(names) != len(parts):
        raise UsageProblem(f"{text!r} is not a scope", f"use {_SCOPES}; put a name with a comma in double quotes")
    return Scope(kind, names.get("role", ""), names.get("database", ""))


def _check_text(word: str) -> None:
    """Refuse bytes that the locale's encoding has no character for: Python makes lone surrogates of them."""
    try:
        word.encode()
    except UnicodeEncodeError:
        escaped = word.encode(errors="backslashreplace").decode()
        raise UsageProblem(
            f"{escaped} contains bytes that are not text", "type the word in the terminal's encoding"
        ) from None


def instead(name: str, all_names: Sequence[str]) -> str:
    """Return a hint for an unknown name of a parameter: the nearest of all names."""
    near = difflib.get_close_matches(name.lower(), all_names, n=3, cutoff=0.6) or nearest_settings([name])
    if near:
        return f"did you mean {' or '.join(near)}?"
    if "." in name:
        return "custom parameters are known once their library is loaded"
    return "`pgtop-tune parameters` lists those worth tuning"


def is_machine_name(name: str) -> bool:
    """Return True for a setting of the operating system; its name has a dot or a slash."""
    return ("." in name or "/" in name) and knob_of(name) is not None


def split_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of parameters, and those of settings of the machine."""
    return (
        tuple(name for name in names if not is_machine_name(name)),
        tuple(name for name in names if is_machine_name(name)),
    )


def split_words(assignments: Sequence[str]) -> tuple[tuple[str, ...], tuple[WantedSetting, ...]]:
    """Return the NAME=VALUE words of parameters, and the settings of the machine in the others."""
    parameter_words, settings = [], []
    for word in assignments:
        name, equals, value = word.partition("=")
        if equals and is_machine_name(name.strip()):
            settings.append(WantedSetting(name.strip(), value.strip()))
        else:
            parameter_words.append(word)
    return tuple(parameter_words), tuple(settings)


def check_machine_options(settings: Sequence[WantedSetting], *, persist: bool, pending: bool, of_load: bool) -> None:
    """Refuse options of `set` that do not fit settings of the machine, or that fit nothing else.

    Args:
        settings: Settings of the machine on the command line.
        persist: --persist is given.
        pending: --for is given.
        of_load: The scope is the next load.

    Raises:
        UsageProblem: An option does not fit.
    """
    if persist and not settings:
        raise UsageProblem("--persist is for settings of the machine", "parameters survive a restart without it")
    if persist and pending:
        raise UsageProblem("--persist and --for contradict each other", "pass one of them")
    if settings and of_load:
        raise UsageProblem(f"{settings[0].name} applies to the whole machine", "leave --scope load out")


def nearest_settings(names: Sequence[str]) -> tuple[str, ...]:
    """Return the settings of the machine that are near names unknown to the server."""
    settings = [setting for setting in BY_NAME if "." in setting or "/" in setting]
    return tuple(near for name in names for near in difflib.get_close_matches(name, settings, 2, 0.75))
