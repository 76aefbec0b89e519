"""An account that swaps names in its directory as fast as it can, against root who works there."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ACCOUNT: Final = "postgres"

_SWAPPER: Final = r"""
import ctypes, glob, os, sys
pattern, target, names = sys.argv[1], sys.argv[2], sys.argv[3:]
libc = ctypes.CDLL(None, use_errno=True)
os.umask(0)

def put(kind, path):
    try:
        if kind == "link":
            os.symlink(target, path)
        elif kind == "directory link":
            os.symlink(os.path.dirname(target), path)
        elif kind == "hard link":
            os.link(target, path)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            os.mkdir(path)
        else:
            open(path, "w").close()
    except OSError:
        pass

KINDS = ("link", "hard link", "pipe", "file", "directory link", "directory")
print("swapping", flush=True)
turn = 0
while True:
    turn += 1
    for directory, name in ((directory, name) for directory in glob.glob(pattern) for name in names):
        path = os.path.join(directory, name)
        trap = os.path.join(directory, ".trap%d" % (turn % 7))
        put(KINDS[turn % len(KINDS)], trap)
        # RENAME_EXCHANGE of renameat2(2), then a plain rename.
        if libc.renameat2(-100, trap.encode(), -100, path.encode(), 2) != 0:
            try:
                os.rename(trap, path)
            except OSError:
                pass
    if os.getppid() == 1:
        break
"""


@contextmanager
def swapping(directory: Path | str, target: Path, *names: str) -> Iterator[None]:
    """Swap names in a directory, as the account that owns it, while the block runs.

    Args:
        directory: Of `ACCOUNT`; or a pattern for directories that are made meanwhile.
        target: The file of root that links lead to.
        names: That root works with.
    """
    account = pwd.getpwnam(ACCOUNT)
    process = subprocess.Popen(
        ["/usr/bin/python3", "-c", _SWAPPER, str(directory), str(target), *names],
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", "/usr/bin")},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"swapping\n", sys.version
        yield
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
