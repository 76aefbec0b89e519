"""The commands that make a change by hand, ready to be pasted into a shell.

Sources: sysctl(8), tmpfiles.d(5), udev(7).
"""

from __future__ import annotations

import shlex
from typing import Final

from pgtop_tune.host.sysctl_files import PATH
from pgtop_tune.host.system_settings import is_sysctl, path_of

_TMPFILES: Final = "/etc/tmpfiles.d/pgtop-tune.conf"
_RULES: Final = "/etc/udev/rules.d/99-pgtop-tune.rules"


def commands(name: str, value: str, *, survive: bool) -> tuple[str, ...]:
    """One command for the live value, and with `survive` one more for the time after a reboot."""
    live = (
        f"sudo sysctl -w {shlex.quote(f'{name}={value}')}" if is_sysctl(name) else _tee(value, f"/{path_of(name)}", "")
    )
    return (live, _lasting(name, value)) if survive else (live,)


def _lasting(name: str, value: str) -> str:
    if is_sysctl(name):
        return _tee(f"{name} = {value}", f"/{PATH}", "-a ")
    device, _, setting = name.rpartition("/")
    if path_of(name).startswith("sys/block/"):
        kernel = device.replace("/", "!")
        rule = f'ACTION=="add|change", KERNEL=="{kernel}", ATTR{{queue/{setting}}}="{value}"'
        return _tee(rule, _RULES, "-a ")
    return _tee(f"w /{path_of(name)} - - - - {value}", _TMPFILES, "-a ")


def _tee(text: str, path: str, options: str) -> str:
    return f"echo {shlex.quote(text)} | sudo tee {options}{shlex.quote(path)}"
