"""Fixes that several checks offer: a parameter, a setting of the kernel. `sql_quoting` quotes names and values."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from pgtop_tune.base.sql_quoting import joined, literal
from pgtop_tune.changes.statements import statement
from pgtop_tune.health.check import Fix, Language
from pgtop_tune.host.sysctl_files import PATH
from pgtop_tune.model.postgres import Parameter

_RESTART: Final = "takes effect with a restart"
_PATIENCE: Final = "SET lock_timeout = '5s';"
_RELOAD: Final = "SELECT pg_reload_conf();"
_WINS_OVER_FILES: Final = frozenset({"command line", "environment variable"})
_WHEN: Final = {"postmaster": _RESTART, "backend": "for new sessions", "superuser-backend": "for new sessions"}


def set_parameter(parameter: Parameter, value: str) -> Fix:
    """Return ALTER SYSTEM to a value, and its undo; words where the parameter is set at the server's start."""
    if parameter.source in _WINS_OVER_FILES:
        return by_hand(
            f"{parameter.name} is set at the server's start ({parameter.source}): set it to {value} there; no "
            "file overrides it.",
            f"Set it back to {parameter.shown} there.",
        )
    return set_several([(parameter, value)])


def set_several(values: Sequence[tuple[Parameter, str]]) -> Fix:
    """Return ALTER SYSTEM to values of parameters, none of which is set at the server's start.

    The undo restores the lines that postgresql.auto.conf has now.
    """
    parameters = [parameter for parameter, _ in values]
    restarted = [parameter.name for parameter in parameters if parameter.context == "postmaster"]
    reload = [_RELOAD] if len(restarted) < len(values) else []
    is_one = len(values) == 1
    when = _WHEN.get(parameters[0].context, "") if is_one else restarted and f"{', '.join(restarted)} after a restart"
    assignments = shlex.join(f"{parameter.name}={value}" for parameter, value in values)
    return Fix(
        "\n".join([*(f"{statement(parameter.name, value)};" for parameter, value in values), *reload]),
        "\n".join([*(f"{stored_again(parameter)};" for parameter in reversed(parameters)), *reload]),
        remark=(f"{when}; " if when else "")
        + f"`pgtop-tune set {assignments}` first tests whether the server starts with it",
        parameter=(parameters[0].name, values[0][1]) if is_one else None,
    )


def stored_again(parameter: Parameter) -> str:
    """Return the statement that restores the parameter's line of postgresql.auto.conf as it is now."""
    now = parameter.stored
    if now is None and _in_auto_conf(parameter):
        now = parameter.shown
    return statement(parameter.name, now)


def with_lock_timeout(sql: str) -> str:
    """Return a statement that gives up instead of waiting for a lock, while everybody else waits behind it.

    Not for those with CONCURRENTLY, which block nobody: one that gives up leaves an invalid index.
    """
    return f"{_PATIENCE}\n{sql}"


def _in_auto_conf(parameter: Parameter) -> bool:
    """Return whether ALTER SYSTEM has set it; where the file is hidden, assume so: setting it again does no harm."""
    if parameter.in_auto_conf is None:
        return parameter.source == "configuration file"
    return parameter.in_auto_conf


def sysctl(name: str, value: str, before: str, remark: str = "") -> Fix:
    """Return the fix that sets a sysctl, now and after a reboot.

    Args:
        name: Name of the setting: "vm.swappiness".
        value: New value.
        before: Value now.
        remark: Further remark.
    """
    keep, put_back = kept_line(f"/{PATH}", name, value)
    return _as_root(
        f"sysctl -w {name}={value}\n{keep}", f"sysctl -w {name}={before}\n{put_back}", remark, (name, value)
    )


def _as_root(do: str, undo: str, remark: str, setting: tuple[str, str] | None = None) -> Fix:
    return Fix(
        do=do,
        undo=undo,
        language=Language.SHELL,
        remark=f"as root on the server's machine{'; ' if remark else ''}{remark}",
        parameter=setting,
        of_machine=setting is not None,
    )


def kept_line(file: str, name: str, value: str) -> tuple[str, str]:
    """Return commands that set a value in a file of sysctl.d, and those that restore its line; other lines stay.

    The line as it was is kept beside the file, under a name that nobody reads; an empty one stands for none. It is
    kept once, so that the commands may be run again.

    Args:
        file: Its path; needs no quotes.
        name: Name of the setting: "vm.swappiness".
        value: Without quotes and bars.
    """
    line, pattern = f"{file}.{name}.before", f"^ *{name.replace('.', '[.]')} *="
    return (
        f"[ -e {line} ] || grep '{pattern}' {file} > {line} 2>/dev/null || :\n"
        f"if [ -s {line} ]; then sed -i 's|{pattern}.*|{name} = {value}|' {file}; "
        f"else sed -i '/{pattern}/d' {file} 2>/dev/null || :; printf '%s\\n' '{name} = {value}' >> {file}; fi",
        f'if [ -s {line} ]; then sed -i "s|{pattern}.*|$(tail -n 1 {line})|" {file}; '
        f"else sed -i '/{pattern}/d' {file}; [ -s {file} ] || rm -f {file}; fi; rm -f {line}",
    )


def kept(file: str, *lines: str) -> tuple[str, str]:
    """Return commands that write a file with these lines, and those that restore the file.

    A file that was there is copied beside itself before, under a name that nobody reads; an empty copy stands for none.
    The copy is made once, so that the commands may be run again.

    Args:
        file: Its path; needs no quotes.
        lines: Without quotes in them.
    """
    copy = f"{file}.before-pgtop-tune"
    text = " ".join(f"'{line}'" for line in lines)
    return (
        f"[ -e {copy} ] || cp -p {file} {copy} 2>/dev/null || : > {copy}\nprintf '%s\\n' {text} > {file}",
        f"if [ -s {copy} ]; then mv {copy} {file}; else rm -f {file} {copy}; fi",
    )


def kernel_file(path: str, value: str, before: str, boot: str, name: str = "") -> Fix:
    """Return the fix that writes a value into a file of /sys, which is gone after a reboot.

    Args:
        path: The file.
        value: New content.
        before: Content now.
        boot: Remedy that lasts over a reboot.
        name: Name in `pgtop-tune set`: "vda/scheduler"; "" where it does not know it.
    """
    remark = f"to keep it after a reboot: {boot}"
    return _as_root(f"echo {value} > {path}", f"echo {before} > {path}", remark, (name, value) if name else None)


def mount_again(point: str, option: str, before: str) -> Fix:
    """Return the fix that sets another option of a mount.

    Args:
        point: Mount point. Foreign text.
        option: The new one.
        before: The one it has.
    """
    do, undo = (f"mount -o remount,{mounted} {shlex.quote(point)}" for mounted in (option, before))
    return _as_root(do, undo, "to keep it after a reboot: /etc/fstab")


def preloading(library: Parameter | None, name: str, where: str) -> Fix:
    """Return the fix that loads a library at the start of the server, beside those that it loads already.

    Args:
        library: shared_preload_libraries; None where it is not shown.
        name: Name of the library and its extension.
        where: "" or " on the primary": where the extension is to be made.
    """
    if library is None:
        return by_hand(f"Add {name} to shared_preload_libraries, restart, and CREATE EXTENSION{where}.")
    if library.pending_restart:
        return by_hand(
            f"shared_preload_libraries was changed and waits for a restart: add {name} to its new value, restart, and "
            f"CREATE EXTENSION{where}."
        )
    libraries = [part.strip() for part in library.setting.split(",") if part.strip()] + [name]
    return Fix(
        f"ALTER SYSTEM SET shared_preload_libraries = {joined(', ', map(literal, libraries))};",
        f"{stored_again(library)};",
        remark="takes effect with a restart; install the contrib package first: without the library the server does "
        f"not start; then CREATE EXTENSION {name}{where}",
    )


def by_hand(do: str, undo: str = "") -> Fix:
    """Return a fix that cannot be one command."""
    return Fix(do, undo, Language.WORDS)
