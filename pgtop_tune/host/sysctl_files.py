"""What the files that are read at boot set: the directories of sysctl.d and /etc/sysctl.conf.

Sources: sysctl.d(5), sysctl(8) "--system" of procps 4, sysctl.conf(5). Files are sorted by name, whatever their
directory; of two with the same name the directory named first wins, and a link to /dev/null hides what comes later.

The kernel's command line: what of the settings it fixes at boot, before any file is read.
Source: Documentation/admin-guide/kernel-parameters.txt (hugepages, hugepagesz, default_hugepagesz,
transparent_hugepage, sysctl.*), Documentation/admin-guide/mm/hugetlbpage.rst.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.proc_files import read_once
from pgtop_tune.model.system_setting import Assignment

FILE: Final = "/proc/cmdline"

_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_SIZE: Final = re.compile(r"(\d+)([KMG]?)", re.IGNORECASE)
_SCALE: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_THP: Final = "transparent_hugepage"


def settings_of(cmdline: str, default_page_bytes: int | None) -> Mapping[str, str]:
    """Names of settings and the values the command line gives them.

    Args:
        cmdline: Content of /proc/cmdline.
        default_page_bytes: Hugepagesize of /proc/meminfo: which pool "hugepages=" without a size means.
    """
    found: dict[str, str] = {}
    pool_bytes = default_page_bytes
    for name, value in _words(cmdline):
        if name in ("hugepagesz", "default_hugepagesz"):
            pool_bytes = _size(value)
        elif name == "hugepages":
            pages = _pages(value)
            if pool_bytes and pages is not None:
                # A second number without a size between is ignored by the kernel.
                found.setdefault(pool_name(pool_bytes, default_page_bytes), pages)
        elif name == _THP:
            found[f"{_THP}/enabled"] = value
        elif name.startswith(("sysctl.", "sysctl/")):
            found[dotted(name[7:])] = value
    return found


def pool_name(page_bytes: int, default_page_bytes: int | None) -> str:
    """How the setting of a pool is called: sysctl has the default size only."""
    return "vm.nr_hugepages" if page_bytes == default_page_bytes else f"hugepages-{page_bytes // 1024}kB/nr_hugepages"


def _words(cmdline: str) -> Iterator[tuple[str, str]]:
    """name=value pairs up to "--", after which the words are for init."""
    for word in _WORD.findall(cmdline):
        if word == "--":
            return
        name, _, value = word.replace('"', "").partition("=")
        yield name, value


def _size(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _SCALE[match[2].upper()] if match else None


def _pages(text: str) -> str | None:
    """ "512", or "0:256,1:256" for the nodes, added up."""
    counts = [part.rpartition(":")[2] for part in text.split(",")]
    return str(sum(map(int, counts))) if all(count.isdecimal() and count.isascii() for count in counts) else None


DIRECTORIES: Final = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
"""By rank, for files of the same name."""
LAST: Final = "etc/sysctl.conf"
"""Read after all others by sysctl --system; systemd, where it runs, reads it only where a link in sysctl.d leads."""

_SYSTEMD: Final = "run/systemd/system"
_LARGEST_LINE: Final = 4096
_WILD: Final = re.compile(r"[*?\[]")


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
        """Every line that sets a name ("vm.swappiness"), in the order read; the last one wins.

        A line with the name itself beats patterns ("vm.*"), wherever they stand; a line "-name" without a value keeps
        patterns away from it.

        Args:
            name: With dots.
            zeroed_by: Names whose lines make the kernel set this one to 0: the other half of a pair.
        """
        own = self._about(name)
        zero = [line for other in zeroed_by for line in self._about(other) if line not in own]
        return tuple(
            Assignment("0" if line in zero else line.value or "", line.file, line.number)
            for line in self._lines
            if line in own or line in zero
        )

    def _about(self, name: str) -> list[_Line]:
        named = [line for line in self._lines if line.key == name]
        lines = named or [line for line in self._lines if line.is_pattern and fnmatchcase(name, line.key)]
        return [line for line in lines if line.value is not None]


def _files(root: Path) -> Iterator[Path]:
    """The files in the order in which they are read."""
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


def _lines(path: Path, shown: str) -> Iterator[_Line]:
    """Assignments of a file; a file that cannot be read has none, as for the programs that read it at boot."""
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
            yield _Line(key=dotted(key.removeprefix("-").strip()), value=value.strip(), file=shown, number=number)
        elif key.startswith("-"):
            yield _Line(key=dotted(key[1:].strip()), value=None, file=shown, number=number)


def dotted(key: str) -> str:
    """A name with dots: in files the first separator says which one is meant, and both may be written."""
    slash, dot = key.find("/"), key.find(".")
    if slash >= 0 and (dot < 0 or slash < dot):
        return key.replace(".", "\0").replace("/", ".").replace("\0", "/")
    return key
