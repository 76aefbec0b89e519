"""The configuration: /etc/pgtop-tune/config.toml, over it the user's `config.toml` in the configuration directory, over
it the variables PGTOP_TUNE_THEME, PGTOP_TUNE_INTERVAL and so on. Absent is fine; wrong is said once.

theme = "light"
interval = 2.0
ascii = false
mouse = false
disk_caps = ["vda=6000iops,90MB/s"]
rotate = ["1h"]
keep = ["7d", "20GB"]

[keys]
quit = "q,f10"
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import NotOurs, config_dir, content_of
from pgtop_tune.base.units import TIMES, quantity

FILE_NAME: Final = "config.toml"
OF_MACHINE: Final = Path("/etc/pgtop-tune") / FILE_NAME
"""Configuration of all users of this machine."""
_PREFIX: Final = "PGTOP_TUNE_"
CONFIG: Final = f"{_PREFIX}CONFIG"
LOG_FILE: Final = f"{_PREFIX}LOG_FILE"
LOG_LEVEL: Final = f"{_PREFIX}LOG_LEVEL"
"""Variables of --config, --log-file and --log-level."""


class Config(Struct, frozen=True):
    """The settings of the file; options on the command line win.

    Attributes:
        theme: Name of a theme; "" for the default.
        interval: Seconds between two looks, 0.2 to 60; None for the command's own default.
        ascii: Draw with ASCII only.
        mouse: Capture the mouse; None is on, except with --plain.
        disk_caps: As --disk-cap: "vda=6000iops,90MB/s".
        rotate, keep: As --rotate and --keep of `record`, for recordings begun on the screen.
        keys: Action id → keys separated by commas.
    """

    theme: str = ""
    interval: float | None = None
    ascii: bool = False
    mouse: bool | None = None
    disk_caps: tuple[str, ...] = ()
    rotate: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    keys: Mapping[str, str] = {}


def load_config(path: Path | None = None) -> Config:
    """Return the configuration: the defaults, below the file of the machine, the user's file or that of --config, and
    the variables.

    Args:
        path: The only file to read.

    Raises:
        UsageProblem: A file cannot be read, could have been written by others, or says something it cannot mean, as
            may a variable; names every mistake of a file.
    """
    if path is not None:
        return Config(**_values_of(path))
    named = os.environ.get(CONFIG, "")
    user_file = Path(named).expanduser() if named else config_dir() / FILE_NAME
    of_machine, of_user = _values_of(OF_MACHINE), _values_of(user_file, must_exist=bool(named))
    keys = {**of_machine.get("keys", {}), **of_user.get("keys", {})}
    return Config(**{**of_machine, **of_user, **_of_variables(), "keys": keys})


def _values_of(file: Path, *, must_exist: bool = False) -> dict[str, Any]:
    """Return the values of a file by key; empty where there is none."""
    try:
        content = content_of(file, own_by="name a file of your own with --config")
    except NotOurs as refused:
        raise UsageProblem(str(refused), refused.hint) from None
    except FileNotFoundError:
        if must_exist:
            raise UsageProblem(f"there is no configuration file {file}", "check --config") from None
        return {}
    except OSError as problem:
        if file == Path(os.devnull):
            return {}
        hint = "fix its permissions" if isinstance(problem, PermissionError) else "it must be a regular file"
        raise UsageProblem(f"{file} cannot be read: {problem.strerror}", hint) from None
    from pgtop_tune.base.toml_text import NotToml, tables_of, toml_source

    try:
        parsed: dict[str, Any] = tables_of(toml_source(content))
    except NotToml as problem:
        raise UsageProblem(f"{file} is not TOML: {problem}") from None
    mistakes = [f"unknown key {name!r}" for name in parsed if name not in _CHECKS]
    mistakes += [
        f"{name}: {check(parsed[name])}" for name, check in _CHECKS.items() if name in parsed and check(parsed[name])
    ]
    if mistakes:
        raise UsageProblem(f"{file}: {'; '.join(mistakes)}", f"known keys: {', '.join(_CHECKS)}")
    for name in _LISTS & parsed.keys():
        parsed[name] = tuple(parsed[name])
    return parsed


def _of_variables() -> dict[str, Any]:
    """Return the values of the variables PGTOP_TUNE_THEME, PGTOP_TUNE_INTERVAL and so on, by key."""
    values: dict[str, Any] = {}
    for key, (parse, expected) in _VARIABLES.items():
        variable = f"{_PREFIX}{key.upper()}"
        if not (text := os.environ.get(variable, "").strip()):
            continue
        value = parse(text)
        if value is None or _CHECKS[key](list(value) if isinstance(value, tuple) else value):
            raise UsageProblem(f"{variable}={text} cannot be used: {expected} expected", f"change or unset {variable}")
        values[key] = value
    return values


def _is(kind: type, expected: str) -> Any:
    return lambda value: "" if type(value) is kind else f"{expected} expected"


def _interval(value: object) -> str:
    fits = type(value) in (int, float) and 0.2 <= value <= 60  # type: ignore[operator]
    return "" if fits else "seconds from 0.2 to 60 expected"


def _keys(value: object) -> str:
    fits = isinstance(value, dict) and all(isinstance(keys, str) for keys in value.values())
    return "" if fits else 'a table of action = "key,key" expected'


def _texts(expected: str) -> Any:
    return lambda value: (
        ""
        if isinstance(value, list) and all(isinstance(item, str) for item in value)
        else f"a list of {expected} expected"
    )


_LISTS: Final = frozenset({"disk_caps", "rotate", "keep"})
_CHECKS: Final[Mapping[str, Any]] = {
    "theme": _is(str, "a name in quotes"),
    "interval": _interval,
    "ascii": _is(bool, "true or false"),
    "mouse": _is(bool, "true or false"),
    "disk_caps": _texts('"disk=limit"'),
    "rotate": _texts('"1h" or "500MB"'),
    "keep": _texts('"24", "7d" or "20GB"'),
    "keys": _keys,
}


def _seconds(text: str) -> float | None:
    return quantity(text, {**TIMES, "": 1.0})


_TRUTH: Final = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}
_VARIABLES: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "theme": (str, "the name of a theme"),
    "interval": (_seconds, "a time from 200ms to 60s"),
    "ascii": (lambda text: _TRUTH.get(text.lower()), "true or false"),
    "mouse": (lambda text: _TRUTH.get(text.lower()), "true or false"),
    "disk_caps": (lambda text: tuple(text.split()), "limits separated by blanks"),
    "rotate": (lambda text: tuple(text.split()), "1h or 500MB"),
    "keep": (lambda text: tuple(text.split()), "24, 7d or 20GB"),
}
"""Keys that a variable can set: how its text is read, and its form in words."""
