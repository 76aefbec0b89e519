"""NAME=VALUE words of `set`, checked before the server is asked to take them. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from pgtop_tune.advice.knobs.system import BY_NAME, knob_of
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import SYSTEM, Scope, ScopeKind, WantedParameter, WantedSetting
from pgtop_tune.model.postgres import Parameter

LOAD: Final = "load"
"""The scope of sessions that are yet to be started by us: nothing is changed on the server."""
SESSION_CONTEXTS: Final = frozenset({"user", "superuser", "backend", "superuser-backend"})
"""pg_settings.context of what a session can have for itself."""
PARAMETER_NAMES: Final = "SELECT name FROM pg_settings"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(?:\.[A-Za-z_][A-Za-z0-9_$]*)*", re.ASCII)
_SCOPE_PART: Final = re.compile(r'\s*(role|database)\s*=\s*(?:"((?:[^"]|"")+)"|([^",][^,]*?))\s*(?:,(?!$)|$)')
_SCOPE: Final = re.compile(f"(?:{_SCOPE_PART.pattern})+")
_SCOPES: Final = "system, role=NAME, database=NAME, role=NAME,database=NAME or load"


def wanted_parameters(words: Sequence[str], scope: Scope) -> tuple[WantedParameter, ...]:
    """What `set` is asked for.

    Args:
        words: "max_wal_size=4GB": all behind the first = is the value, whatever it holds; of "NAME = VALUE" without the
            blanks before it. `model.parameter_values.without_blanks` takes those behind it where they mean nothing.
        scope: For whom.

    Raises:
        UsageProblem: A word without =, or something that is not the name of a parameter.
    """
    found = []
    for word in words:
        _check_text(word)
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageProblem(f"{word!r} is not NAME=VALUE", "as in max_wal_size=4GB; `reset` takes names alone")
        found.append(WantedParameter(checked_name(name.strip()), assigned(name, value), scope))
    return tuple(found)


def assigned(name: str, value: str) -> str:
    """Return the value of NAME=VALUE; blanks around the = are no part of it, a blank alone before it is.

    Args:
        name: All before the =.
        value: All behind it.
    """
    return value.lstrip() if name.endswith(" ") else value


def checked_name(name: str) -> str:
    """A name that can be one of a parameter.

    Raises:
        UsageProblem: It cannot.
    """
    if not _NAME.fullmatch(name):
        near = nearest_settings([name])
        hint = f"did you mean {' or '.join(near)}?" if near else "as in max_wal_size, or pg_stat_statements.max"
        raise UsageProblem(f"{name!r} is not the name of a parameter", hint)
    return name


def scope_of(text: str) -> Scope | None:
    """What --scope means; None is the session of the next load.

    Raises:
        UsageProblem: None of the scopes.
    """
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
        raise UsageProblem(f"{text!r} is not a scope", f"say {_SCOPES}; a name with a comma stands in double quotes")
    return Scope(kind, names.get("role", ""), names.get("database", ""))


def _check_text(word: str) -> None:
    """Arguments are bytes: those that the locale's encoding has no character for come as lone surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        shown = word.encode(errors="backslashreplace").decode()
        raise UsageProblem(f"{shown} holds bytes that are not text", "write it in the terminal's encoding") from None


def check_known(names: Iterable[str], found: Iterable[Parameter], all_names: Iterable[str]) -> None:
    """Every name is one the server has.

    Raises:
        UsageProblem: One is not; with the nearest it has.
    """
    have = {parameter.name.lower() for parameter in found}
    for name in names:
        if name.lower() not in have:
            raise UsageProblem(f"the server has no parameter {name}", instead(name, list(all_names)))


def instead(name: str, all_names: Sequence[str]) -> str:
    """A hint for a name that no parameter has: the nearest of all names."""
    near = difflib.get_close_matches(name.lower(), all_names, n=3, cutoff=0.6) or nearest_settings([name])
    if near:
        return f"did you mean {' or '.join(near)}?"
    if "." in name:
        return "custom parameters are known once their library is loaded"
    return "`pgtop-tune parameters` lists those worth tuning"


def is_machine_name(name: str) -> bool:
    """Whether a name is one of the operating system: in its catalogue, and no parameter without a dot."""
    return ("." in name or "/" in name) and knob_of(name) is not None


def split_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of parameters, and those of settings of the machine."""
    return (
        tuple(name for name in names if not is_machine_name(name)),
        tuple(name for name in names if is_machine_name(name)),
    )


def split_words(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[WantedSetting, ...]]:
    """NAME=VALUE words of the server, and what is wanted of the machine."""
    parts = [(word, *word.partition("=")) for word in words]
    of_machine = [(word, name.strip(), value.strip()) for word, name, equals, value in parts if equals]
    settings = {word: WantedSetting(name, value) for word, name, value in of_machine if is_machine_name(name)}
    rest = tuple(word for word in words if word not in settings)
    return rest, tuple(settings[word] for word in words if word in settings)


def check_machine_options(settings: Sequence[WantedSetting], *, persist: bool, pending: bool, of_load: bool) -> None:
    """Options of `set` that have a meaning for settings of the machine, or have none.

    Raises:
        UsageProblem: They contradict each other.
    """
    if persist and not settings:
        raise UsageProblem("--persist is for settings of the machine", "ALTER SYSTEM survives a restart by itself")
    if persist and pending:
        raise UsageProblem("--persist and --for contradict each other", "pass one of them")
    if settings and of_load:
        raise UsageProblem(f"{settings[0].name} is one value for the whole machine", "leave --scope load out")


def nearest_settings(names: Sequence[str]) -> tuple[str, ...]:
    """Settings of the machine that may be meant by names that the server does not know."""
    known = [each for each in BY_NAME if "." in each or "/" in each]
    return tuple(near for name in names for near in difflib.get_close_matches(name, known, 2, 0.75))
