"""The one file, made of the packages of this environment, and how a test starts it."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.packaging_step import packaging_step

PYTHON = os.path.realpath(sys.executable)
"""Not that of the environment: the one file has its own packages."""
_ALONE = """
set -e
python=$1 file=$2 socket=$3; shift 3
mount -t tmpfs none /mnt
mkdir /mnt/python /mnt/file /mnt/socket /mnt/state
mount --bind "$python" /mnt/python; mount --bind "$file" /mnt/file; mount --bind "$socket" /mnt/socket
mount -t tmpfs -o mode=1777 none /var/tmp; chown nobody /mnt/state
{home}
exec setpriv --reuid=nobody --regid=nogroup --clear-groups sh -c 'run() {{ ( {run} ) }}; {shell}' sh "$@"
"""


def made_once(factory: pytest.TempPathFactory) -> Path:
    """Return the one file for the Python that runs the tests; the first worker that asks makes it, in three seconds."""
    with _shared(factory, "one-file") as directory:
        made = sorted(directory.glob("*.pyz"))
        return made[0] if made else packaging_step("one_file").build_here(directory)


def tree_made_once(factory: pytest.TempPathFactory) -> Path:
    """Return the directory that a package of a distribution installs, for the Python that runs the tests."""
    with _shared(factory, "tree") as directory:
        if not (directory / "MANIFEST").exists():
            step = packaging_step("tree")
            step.make(step.HERE, directory)
        return directory


@contextmanager
def _shared(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A directory of all workers, which one of them at a time has."""
    shared = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared / name


def words_of_package(tree: Path) -> tuple[str, ...]:
    """Return the words with which the launcher of a package starts the program."""
    return (PYTHON, "-I", "-S", str(tree / "start.py"))


def words(file: Path, cache: Path) -> tuple[str, ...]:
    """Return the words that start a one file, whose files are in a directory below `cache`."""
    return ("env", f"XDG_CACHE_HOME={cache}", PYTHON, "-IS", str(file))


class Nobody:
    """An account that owns nothing, without network; it starts the one file. Its caller is root.

    Attributes:
        variables: The environment of its programs; they find the server.

    Args:
        file: The one file.
        server: One whose socket everybody reaches.
        program: The Python.
        home: The shell's words that make or take away its home.
    """

    def __init__(self, file: Path, server: Throwaway, program: Path = Path(PYTHON), home: str = "unset HOME") -> None:
        self._directories = (str(program.parents[1]), str(file.parent), str(server.socket_dir))
        self._home = home
        self._run = f'exec "/mnt/python/bin/{program.name}" -IS "/mnt/file/{file.name}" "$@"'
        self.variables = {
            # Where a Python of pyenv has its own library, when it is not at the place that it was built for.
            "LD_LIBRARY_PATH": "/mnt/python/lib",
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": "/mnt/state",
            "PGHOST": "/mnt/socket", "PGPORT": str(server.port), "PGUSER": "postgres", "PGDATABASE": "postgres",
        }  # fmt: skip

    def words(self, *arguments: str, shell: str = "") -> list[str]:
        """Return the words of one program with arguments, or of a shell that has it as `run`: files go with it."""
        script = _ALONE.format(home=self._home, run=self._run, shell=shell or self._run)
        return ["unshare", "-m", "-n", "sh", "-c", script, "sh", *self._directories, *arguments]
