"""A server that calls itself a major which does not exist yet: a real one, its program's version rewritten.

Every answer that names a version names the other one: settings, version(), start-up packet, postgres --version.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.cluster.binaries import Binaries
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.quick_server import QUICK

_PROGRAMS: Final = ("postgres", "pg_ctl")


@contextmanager
def server_of_newer_major(binaries: Binaries, major: int) -> Iterator[Throwaway]:
    """A running server of these programs that calls itself `major`. CREATE DATABASE does not work there."""

    class Renamed(Throwaway):
        def _initdb(self) -> None:
            # The real initdb wants the real server beside it.
            ours, self._programs = self._programs, binaries
            super()._initdb()
            self._programs = ours
            for file in Path(str(self.data_dir)).rglob("PG_VERSION"):
                file.write_text(f"{major}\n", encoding="ascii")

    with (
        tempfile.TemporaryDirectory(prefix="pgtop-newer-") as root,
        Renamed.create(_renamed(binaries, major, Path(root)), settings=QUICK) as server,
    ):
        yield server


def _renamed(binaries: Binaries, major: int, root: Path) -> Binaries:
    """A copy of the programs below `root` that call themselves `major`; libraries and the rest are the originals'."""
    version = f"{major}{binaries.version.removeprefix(str(binaries.major))}"
    assert len(version) == len(binaries.version), "texts in a program keep their length"
    version_num = major * 10_000 + binaries.version_num % 10_000
    home = binaries.bin_dir.parent
    # Programs look for their libraries and files beside themselves: the same distance from the same names.
    top = next(up for up in home.parents if (up / "share").is_dir()) if not (home / "share").is_dir() else home
    bin_dir = root / binaries.bin_dir.relative_to(top.parent)
    bin_dir.mkdir(parents=True)
    for original in binaries.bin_dir.iterdir():
        if original.name in _PROGRAMS:
            content = original.read_bytes()
            content = content.replace(binaries.version.encode(), version.encode())
            content = content.replace(struct.pack("=i", binaries.version_num), struct.pack("=i", version_num))
            (bin_dir / original.name).write_bytes(content)
            (bin_dir / original.name).chmod(0o755)
        else:
            (bin_dir / original.name).symlink_to(original)
    _link_beside(bin_dir, binaries.bin_dir, root, top.parent)
    for directory in (root, *(each for each in root.rglob("*") if each.is_dir() and not each.is_symlink())):
        directory.chmod(0o755)
    return replace(binaries, bin_dir=bin_dir, version=version, version_num=version_num)


def _link_beside(made: Path, original: Path, root: Path, end: Path) -> None:
    """Links whatever is beside the path of `original`, on every level up to `end`."""
    while original != end:
        for beside in original.parent.iterdir():
            if beside != original and not (made.parent / beside.name).exists():
                (made.parent / beside.name).symlink_to(beside)
        made, original = made.parent, original.parent
        if made == root:
            break
