"""The user's configuration file: `config.toml` in the configuration directory. Absent is fine; wrong is said once.

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

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import config_dir, content_of

FILE_NAME: Final = "config.toml"


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
    keys: Mapping[str, str] = field(default_factory=dict)


def load_config(path: Path | None = None) -> Config:
    """Return the configuration, or the defaults where there is no file.

    Args:
        path: Another file than the user's own.

    Raises:
        UsageProblem: The file cannot be read or says something it cannot mean; names every mistake.
    """
    file = path or config_dir() / FILE_NAME
    try:
        content = content_of(file)
    except FileNotFoundError:
        return Config()
    except OSError as problem:
        hint = "fix its permissions" if isinstance(problem, PermissionError) else "it must be a regular file"
        raise UsageProblem(f"{file} cannot be read: {problem.strerror}", hint) from None
    from pgtop_tune.base.toml_text import NotToml, tables_of, toml_source

    try:
        parsed = tables_of(toml_source(content))
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
    return Config(**parsed)


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
