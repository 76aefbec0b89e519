"""A Debian in a directory that knows nothing of this machine: packages are installed into it and run from it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.debian_chroot import NoChroot, mirror

_MAKE_LIMIT_S: Final = 600.0
_ENTER: Final = """
set -e
root=$1 socket=$2 user=$3; shift 3
mount --bind /proc "$root/proc"
mount --rbind /dev "$root/dev"
if [ "$socket" ]; then mkdir -p "$root/run/postgresql"; mount --bind "$socket" "$root/run/postgresql"; fi
exec chroot ${user:+--userspec="$user"} "$root" "$@"
"""
_VARIABLES: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


class CleanRoot:
    """A Debian in a directory.

    Attributes:
        directory: Its root.
    """

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory

    @classmethod
    def made(cls, directory: Path, packages: Sequence[str]) -> CleanRoot:
        """Make one of the packages that a small Debian has, and these. Takes a minute; skips without root or mirror."""
        if os.geteuid() != 0 or shutil.which("mmdebstrap") is None or shutil.which("unshare") is None:
            pytest.skip("a clean root takes root, mmdebstrap and unshare")
        try:
            archive = mirror()
        except NoChroot as problem:
            pytest.skip(str(problem))
        release = _release()
        words = ["mmdebstrap", "--variant=apt", f"--include={','.join(packages)}"]
        # A mirror may be a frozen one, whose lists have run out.
        words += [
            '--aptopt=Acquire::Check-Valid-Until "false"',
            release,
            str(directory),
            f"deb {archive} {release} main",
        ]
        subprocess.run(words, check=True, timeout=_MAKE_LIMIT_S, capture_output=True)
        directory.chmod(0o755)
        shutil.copy("/etc/resolv.conf", directory / "etc/resolv.conf")
        return cls(directory)

    def copy(self, directory: Path) -> CleanRoot:
        """Return another one of the same content."""
        subprocess.run(["cp", "-a", "--reflink=auto", str(self.directory), str(directory)], check=True)
        return CleanRoot(directory)

    def words(self, *words: str, socket: Path | None = None, user: str = "", network: bool = False) -> list[str]:
        """Return the words that run a program in it; the process of these words becomes the program.

        Args:
            words: The program and its arguments.
            socket: Directory of a server's socket, which is /run/postgresql inside.
            user: Account inside, root by default.
            network: Otherwise there is none.
        """
        apart = ["unshare", "--mount", "--propagation", "private", *(() if network else ("--net",))]
        return [*apart, "sh", "-c", _ENTER, "sh", str(self.directory), str(socket or ""), user, *words]

    def run(
        self,
        *words: str,
        socket: Path | None = None,
        user: str = "",
        network: bool = False,
        variables: Mapping[str, str] | None = None,
        status: int | None = 0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in it to its end; fail the test where the exit status is another one."""
        done = subprocess.run(
            self.words(*words, socket=socket, user=user, network=network), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, encoding="utf-8", timeout=_MAKE_LIMIT_S, check=False,
            env={**_VARIABLES, **(variables or {})},
        )  # fmt: skip
        assert status is None or done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    @contextmanager
    def started(
        self, *words: str, socket: Path | None = None, user: str = "", variables: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Start a program in it; it is killed at the end."""
        process = subprocess.Popen(
            self.words(*words, socket=socket, user=user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, encoding="utf-8", env={**_VARIABLES, **(variables or {})},
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def files(self) -> dict[str, str]:
        """Return every file, link and directory with its content's kind, below what packages and programs share."""
        shown = {}
        for path in self.directory.rglob("*"):
            name = str(path.relative_to(self.directory))
            if not name.startswith(("proc/", "dev/", "var/cache/", "var/log/", "tmp/", "run/")):
                shown[name] = f"-> {path.readlink()}" if path.is_symlink() else ("/" if path.is_dir() else "")
        return shown


def _release() -> str:
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return next(line.partition("=")[2].strip('"') for line in lines if line.startswith("VERSION_CODENAME="))
