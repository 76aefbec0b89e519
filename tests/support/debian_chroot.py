"""A PostgreSQL that only Debian's development branches have: unpacked into a directory of its own, once.

Its programs are told to take the libraries of that directory, so that they run outside of it like those of a package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster.binaries import Binaries, inspect

ORIGIN: Final = "Debian experimental"

_MAKE_LIMIT_S: Final = 240.0
_LIMIT_S: Final = 30.0
_ELF: Final = b"\x7fELF"


class NoChroot(Exception):
    """It cannot be made here; the text says why."""


def kept(major: int, store: Path) -> Path | None:
    """The directory that an earlier run made."""
    root = store / f"debian-{major}"
    return root if root.is_dir() else None


def chroot_build(major: int, store: Path) -> Binaries:
    """Programs of that major with pgbench and contrib. Making them takes a minute; they are kept below `store`.

    Raises:
        NoChroot: No Debian, not root, no mmdebstrap, or nothing there to unpack.
    """
    root = kept(major, store)
    if root is None:
        root = store / f"debian-{major}"
        _make(major, root)
    try:
        return inspect(_bin_dir(root, major), ORIGIN)
    except ClusterProblem as problem:
        raise NoChroot(problem.message) from problem


def _bin_dir(root: Path, major: int) -> Path:
    return root / f"usr/lib/postgresql/{major}/bin"


def _make(major: int, root: Path) -> None:
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        raise NoChroot("a chroot takes root on Debian")
    if shutil.which("mmdebstrap") is None:
        raise NoChroot("no mmdebstrap")
    archive = mirror()
    packages = f"postgresql-{major} postgresql-client-{major} libpq5"
    with tempfile.TemporaryDirectory(dir=root.parent, prefix="chroot-") as scratch:
        pin = Path(scratch) / "pin"
        pin.write_text(f"Package: {packages}\nPin: release a=experimental\nPin-Priority: 990\n", encoding="ascii")
        target = Path(scratch) / "root"
        # "extract" runs no script of a package: nothing is configured, and no service started.
        words = ["mmdebstrap", "--variant=extract", f"--include=postgresql-{major},patchelf,libc6"]
        # A mirror may be a frozen one, whose lists have run out.
        words += ['--aptopt=Acquire::Check-Valid-Until "false"']
        words += ["--setup-hook=mkdir -p $1/etc/apt/preferences.d", f"--setup-hook=cp {pin} $1/etc/apt/preferences.d/"]
        words += ["sid", str(target), f"deb {archive} sid main", f"deb {archive} experimental main"]
        _run(words, _MAKE_LIMIT_S)
        target.chmod(0o755)
        _settle(target, root, _bin_dir(target, major))
        target.rename(root)


def _settle(made: Path, root: Path, bin_dir: Path) -> None:
    """Names the loader and the libraries of the directory in its programs, as they are called when it is at `root`."""
    patchelf = made / "usr/bin/patchelf"
    libraries = sorted({path.parent for path in made.glob("usr/lib/*/libc.so.6")})
    if not libraries or not patchelf.exists():
        raise NoChroot("what was unpacked has no C library")
    loader = next(made.glob("usr/lib*/**/ld-linux*.so.*"))
    # patchelf itself is of that system, too.
    ours = [str(loader), "--library-path", str(libraries[0]), str(patchelf)]
    path = root / libraries[0].relative_to(made)
    for program in sorted(bin_dir.iterdir()):
        with program.open("rb") as file:
            if file.read(len(_ELF)) != _ELF:
                continue
        interpreter = str(root / loader.relative_to(made))
        _run([*ours, "--force-rpath", "--set-rpath", str(path), "--set-interpreter", interpreter, str(program)])


def mirror() -> str:
    """Return the address of Debian's archive that apt takes packages from.

    Raises:
        NoChroot: There is none.
    """
    told = _run(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"], _MAKE_LIMIT_S)
    mirrors = re.findall(r"^https?://\S+/debian/?$", told, re.MULTILINE)
    if not mirrors:
        raise NoChroot("apt names no mirror of Debian")
    return str(mirrors[0])


def _run(words: list[str], limit_s: float = _LIMIT_S) -> str:
    """What a program printed.

    Raises:
        NoChroot: It is not there, fails, or takes longer than that.
    """
    try:
        answer = subprocess.run(
            words,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NoChroot(f"{words[0]}: {type(problem).__name__}") from None
    if answer.returncode != 0:
        last = (answer.stderr.strip() or answer.stdout.strip() or "no word").splitlines()[-1]
        raise NoChroot(f"{words[0]} failed: {last}")
    return answer.stdout
