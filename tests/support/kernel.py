"""The kernel this runs on, for tests that change it: one test process at a time, and all of it put back."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.sysctl_files import PATH as DROP_IN
from pgtop_tune.host.system_settings import SYSCTLS, TRANSPARENT, live_value, path_of
from tests.support.accounts import require_root

NR_HUGEPAGES = path_of("vm.nr_hugepages")
LOCK = "/tmp"
"""A directory that every account may open, and so lock: a file in it belongs to one of them."""


def kernel() -> dict[str, str]:
    """Every setting of this kernel that is the same for all processes."""
    return {path: live_value(path, ROOT) for path in map(path_of, (*SYSCTLS, *TRANSPARENT)) if (ROOT / path).exists()}


def sysctl(name: str) -> str:
    """What the kernel has now."""
    return live_value(path_of(name), ROOT)


def memory_in_one_piece() -> None:
    """Lets the kernel drop cached files and move the rest together: huge pages want memory in one piece."""
    for name in ("drop_caches", "compact_memory"):
        (ROOT / "proc/sys/vm" / name).write_text("1")


@contextmanager
def kernel_left_alone() -> Iterator[dict[str, str]]:
    """Its settings as they are, while no other test changes them: for tests that must not."""
    lock = os.open(LOCK, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield kernel()
    finally:
        os.close(lock)


@contextmanager
def kernel_of_our_own() -> Iterator[dict[str, str]]:
    """Its settings as they are; skips where they cannot be written, and restores them also when a test fails."""
    require_root()
    if not os.access(ROOT / NR_HUGEPAGES, os.W_OK):
        pytest.skip("the kernel's settings cannot be written here: /proc/sys is read-only")
    with kernel_left_alone():
        # Not before: another test process may just have made it, and takes it away.
        if (ROOT / DROP_IN).exists():
            pytest.skip(f"this machine has a /{DROP_IN} of its own")
        before = kernel()
        try:
            yield before
        finally:
            (ROOT / DROP_IN).unlink(missing_ok=True)
            for path, value in before.items():
                # 0 bytes are refused; the ratio beside them, written in its turn, sets them.
                if live_value(path, ROOT) != value and not (value == "0" and path.endswith("bytes")):
                    (ROOT / path).write_text(value)
