"""The kernel's command line: what of the settings it fixes at boot, before any file is read.

Source: Documentation/admin-guide/kernel-parameters.txt (hugepages, hugepagesz, default_hugepagesz,
transparent_hugepage, sysctl.*), Documentation/admin-guide/mm/hugetlbpage.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pgtop_tune.host.sysctl_files import dotted

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
