"""Settings in the files that are read at boot, ours included: /etc/sysctl.d and /etc/sysctl.conf.

Sources: sysctl.d(5), sysctl(8) "--system" of procps 4, sysctl.conf(5). Files are sorted by name, whatever their
directory; of two with the same name the directory named first wins, and a link to /dev/null hides what comes later.

The kernel's command line: what of the settings it fixes at boot, before any file is read.
Source: Documentation/admin-guide/kernel-parameters.txt (hugepages, hugepagesz, default_hugepagesz,
transparent_hugepage, sysctl.*), Documentation/admin-guide/mm/hugetlbpage.rst.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import HostProblem
from pgtop_tune.base.paths import opened
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.model.machine import Assignment, SystemSetting

FILE: Final = "/proc/cmdline"

_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_SIZE: Final = re.compile(r"(\d+)([KMG]?)", re.IGNORECASE)
_SCALE: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_THP: Final = "transparent_hugepage"


def command_line_settings(cmdline: str, default_page_bytes: int | None) -> Mapping[str, str]:
    """Return the settings and values of the kernel's command line.

    Args:
        cmdline: Content of /proc/cmdline.
        default_page_bytes: Hugepagesize of /proc/meminfo: which pool "hugepages=" without a size means.
    """
    values: dict[str, str] = {}
    pool_bytes = default_page_bytes
    for name, value in _words(cmdline):
        if name in ("hugepagesz", "default_hugepagesz"):
            pool_bytes = _size(value)
        elif name == "hugepages":
            pages = _pages(value)
            if pool_bytes and pages is not None:
                # A second number without a size between is ignored by the kernel.
                values.setdefault(pool_name(pool_bytes, default_page_bytes), pages)
        elif name == _THP:
            values[f"{_THP}/enabled"] = value
        elif name.startswith(("sysctl.", "sysctl/")):
            values[dotted(name[7:])] = value
    return values


def pool_name(page_bytes: int, default_page_bytes: int | None) -> str:
    """Return the name of the setting of a pool: sysctl has the default size only."""
    return "vm.nr_hugepages" if page_bytes == default_page_bytes else f"hugepages-{page_bytes // 1024}kB/nr_hugepages"


def _words(cmdline: str) -> Iterator[tuple[str, str]]:
    """Yield name=value pairs up to "--", after which the words are for init."""
    for word in _WORD.findall(cmdline):
        if word == "--":
            return
        name, _, value = word.replace('"', "").partition("=")
        yield name, value


def _size(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _SCALE[match[2].upper()] if match else None


def _pages(text: str) -> str | None:
    """Return the pages of "512", or of "0:256,1:256" for the nodes, added up."""
    counts = [part.rpartition(":")[2] for part in text.split(",")]
    return str(sum(map(int, counts))) if all(count.isdecimal() and count.isascii() for count in counts) else None


DIRECTORIES: Final = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
"""Directories by rank, for files of the same name."""
LAST: Final = "etc/sysctl.conf"
"""The file read after all others by sysctl --system; systemd, where it runs, reads it only through a link in
sysctl.d."""

_SYSTEMD: Final = "run/systemd/system"
_LARGEST_LINE: Final = 4096
_WILD: Final = re.compile(r"[*?\[]")
_NUMBERS: Final = re.compile(r"(-?(?:0[xX][0-9a-fA-F]+|\d+)(?:\s+-?(?:0[xX][0-9a-fA-F]+|\d+))*)\s+[^\s\d-].*", re.ASCII)
"""Numbers with more behind them: neither format has such comments, and the kernel takes the numbers (proc_get_long)."""


class _Line(Struct, frozen=True):
    key: str
    value: str | None
    file: str
    number: int

    @property
    def is_pattern(self) -> bool:
        return _WILD.search(self.key) is not None


class SysctlFiles:
    """The files as they are now, read once.

    Args:
        root: Where /etc, /run, /usr and /lib are found.
    """

    def __init__(self, root: Path) -> None:
        self._lines = tuple(line for path in _files(root) for line in _lines(path, "/" + str(path.relative_to(root))))

    def of(self, name: str, zeroed_by: Collection[str] = ()) -> tuple[Assignment, ...]:
        """Return every line that sets a name ("vm.swappiness"), in the order read; the last one wins.

        A line with the name itself beats patterns ("vm.*"), wherever they stand; a line "-name" without a value keeps
        patterns away from it.

        Args:
            name: With dots.
            zeroed_by: Names whose lines make the kernel set this one to 0: the other half of a pair.
        """
        own_lines = self._about(name)
        zero = [line for pair in zeroed_by for line in self._about(pair) if line not in own_lines]
        return tuple(
            Assignment("0" if line in zero else line.value or "", line.file, line.number)
            for line in self._lines
            if line in own_lines or line in zero
        )

    def _about(self, name: str) -> list[_Line]:
        named = [line for line in self._lines if line.key == name]
        lines = named or [line for line in self._lines if line.is_pattern and fnmatchcase(name, line.key)]
        return [line for line in lines if line.value is not None]


def _files(root: Path) -> Iterator[Path]:
    """Yield the files in the order in which they are read."""
    by_name: dict[str, Path] = {}
    for directory in DIRECTORIES:
        for path in _configurations(root / directory):
            by_name.setdefault(path.name, path)
    last = root / LAST
    ordered = [by_name[name] for name in sorted(by_name)]
    if (root / _SYSTEMD).is_dir():
        yield from ordered
        return
    yield from (path for path in ordered if path.resolve() != last.resolve())
    yield last


def _configurations(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if path.name.endswith(".conf")]
    except OSError:
        return []


def _lines(path: Path, shown_path: str) -> Iterator[_Line]:
    """Yield the assignments of a file; a file that cannot be read has none, as for the programs that read it at
    boot."""
    try:
        # A link to /dev/null, a pipe, a directory: nothing to read, and nothing to wait for.
        text = read_once(path).decode("utf-8", "surrogateescape") if path.is_file() else ""
    except OSError:
        return
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;" or len(line) > _LARGEST_LINE:
            continue
        key, equals, value = stripped.partition("=")
        key = key.strip()
        if equals:
            yield _Line(
                key=dotted(key.removeprefix("-").strip()),
                value=_in_force(value.strip()),
                file=shown_path,
                number=number,
            )
        elif key.startswith("-"):
            yield _Line(key=dotted(key[1:].strip()), value=None, file=shown_path, number=number)


def _in_force(value: str) -> str:
    """Return what the kernel takes of a value: of numbers nothing behind a blank that is no number, of a text all."""
    numbers = _NUMBERS.fullmatch(value)
    return numbers[1] if numbers else value


def dotted(key: str) -> str:
    """Return a name with dots: in files the first separator decides which one is meant, and both may be written."""
    slash, dot = key.find("/"), key.find(".")
    if slash >= 0 and (dot < 0 or slash < dot):
        return key.replace(".", "\0").replace("/", ".").replace("\0", "/")
    return key


# Our file in /etc/sysctl.d: one line per setting, written whole or not at all, put back to the byte.
#
# Values that the kernel starts with where no file and no command line sets others.
# Sources: mm/vmscan.c (vm_swappiness, node_reclaim_mode), mm/page-writeback.c, mm/util.c (sysctl_overcommit_*),
# mm/hugetlb.c, mm/khugepaged.c. What depends on the machine or on how the kernel was built is not among them.

PATH: Final = "etc/sysctl.d/99-pgtop-tune.conf"

_TEMPORARY: Final = ".new"
"""Suffix of the new file; without .conf, no program reads it at boot."""


def content(path: Path) -> str | None:
    """Return the content of a file, byte for byte (surrogateescape); None when there is none.

    Raises:
        HostProblem: It is there and cannot be read, or is a link to another file.
    """
    try:
        with opened(path, links=False) as file:
            return file.read().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise HostProblem(
            f"{path} cannot be read: {problem.strerror}", "it must be a regular file, not a link"
        ) from None


def with_sysctl(before: str | None, name: str, value: str) -> str:
    """Return the content with a value for a name: in the place of the line that sets it, else as a new last line."""
    lines = (before or "").split("\n")
    line = f"{name} = {value}"
    own_lines = _own(lines, name)
    if own_lines:
        lines[own_lines[-1]] = line
        return "\n".join(lines)
    if lines[-1] == "":
        lines.pop()
    return "\n".join([*lines, line, ""])


def without_value(now: str, name: str, before: str | None) -> str | None:
    """Return the content after somebody else edited it: our line as it was before, or gone; None
    when nothing is left."""
    lines = now.split("\n")
    previous = [line for line in (before or "").split("\n") if _name(line) == name]
    for number in _own(lines, name)[-1:]:
        lines[number : number + 1] = previous[-1:]
    content_left = "\n".join(lines)
    return content_left if content_left.strip() or before is not None else None


def replace(path: Path, text: str | None) -> None:
    """Write the file anew and whole, or remove it; it is on the disk when this returns.

    Raises:
        HostProblem: It could not be; the file is as it was.
    """
    try:
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _written(path.with_name(path.name + _TEMPORARY), text, path)
        _synced(path.parent)
    except OSError as problem:
        raise HostProblem(f"{path} cannot be written: {problem.strerror}") from None


def without_remains(path: Path) -> None:
    """Remove a file that a crash in the middle of writing may have left beside this one.

    Raises:
        HostProblem: It could not be removed.
    """
    try:
        path.with_name(path.name + _TEMPORARY).unlink(missing_ok=True)
    except OSError as problem:
        raise HostProblem(f"{path}{_TEMPORARY} cannot be removed: {problem.strerror}") from None


def _written(new: Path, text: str, path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _synced(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _own(lines: list[str], name: str) -> list[int]:
    return [number for number, line in enumerate(lines) if _name(line) == name]


def _name(line: str) -> str:
    key, equals, _ = line.strip().partition("=")
    return dotted(key.strip().removeprefix("-").strip()) if equals and key[:1] not in "#;" else ""


DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vm.nr_hugepages": "0",
        "vm.swappiness": "60",
        "vm.dirty_background_bytes": "0",
        "vm.dirty_background_ratio": "10",
        "vm.dirty_bytes": "0",
        "vm.dirty_ratio": "20",
        "vm.dirty_expire_centisecs": "3000",
        "vm.dirty_writeback_centisecs": "500",
        "vm.overcommit_memory": "0",
        "vm.overcommit_ratio": "50",
        "vm.overcommit_kbytes": "0",
        "vm.zone_reclaim_mode": "0",
    }
)


def starts_with(setting: SystemSetting) -> str | None:
    """Return the value that the machine would start with without our file of sysctl.d; None where that is not known."""
    other_values = [
        assignment.value for assignment in setting.after_reboot.assignments if assignment.file != f"/{PATH}"
    ]
    return other_values[-1] if other_values else DEFAULTS.get(setting.name)
