"""The kernel this runs on: settings changed and restored, huge pages for a real server. Needs root and a writable
/proc/sys; what is touched is put back even when a test fails, and only one test process touches it at a time."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from pgtop_tune.base.errors import ClusterProblem, HostProblem
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.machine.one_change import pool_of
from pgtop_tune.changes.model.change import ChangeState, Terms, WantedSetting
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.system_settings import SYSCTLS, TRANSPARENT, default_page_bytes, live_value, path_of
from pgtop_tune.model.host import HugePages
from tests.support.kernel import kernel, kernel_of_our_own
from tests.support.servers import conninfo
from tests.support.undoing import undo_setting

PAGE = 2 << 20
SAID: LiteralString = "SELECT current_setting('shared_memory_size_in_huge_pages')::int"
ADDED_UP: LiteralString = "SELECT sum(allocated_size)::bigint FROM pg_shmem_allocations"


@pytest.fixture
def control(tmp_path: Path) -> Iterator[HostControl]:
    with kernel_of_our_own():
        yield HostControl(directory=tmp_path)


def other_value(name: str) -> str:
    """A value that the kernel takes and nobody notices for a moment."""
    path = path_of(name)
    if name == "transparent_hugepage/enabled":
        return "never" if live_value(path, ROOT) != "never" else "madvise"
    if name == "transparent_hugepage/defrag":
        return "never" if live_value(path, ROOT) != "never" else "madvise"
    value = int(live_value(path, ROOT))
    return {
        "transparent_hugepage/khugepaged/defrag": str(1 - value),
        "vm.dirty_background_bytes": "1073741824",
        "vm.dirty_bytes": "4294967296",
        "vm.overcommit_kbytes": "16777216",
        "vm.min_free_kbytes": str(value + 1024),
        "kernel.numa_balancing": str(int(not value)),
        "kernel.sched_autogroup_enabled": str(int(not value)),
    }.get(name, str(value + 1))


@pytest.mark.root
@pytest.mark.parametrize(
    "name",
    sorted({*SYSCTLS, *TRANSPARENT} - {"vm.nr_hugepages", "vm.zone_reclaim_mode", "vm.overcommit_memory"}),
)
def test_every_setting_is_changed_on_the_real_kernel_and_all_of_it_restored(control: HostControl, name: str) -> None:
    if not (ROOT / path_of(name)).exists():
        pytest.skip(f"this kernel has no {name}")
    before = kernel()
    value = other_value(name)
    change = asyncio.run(control.apply(name, value))
    assert (change.state, change.shown_after, change.message) == (ChangeState.APPLIED, value, "")
    assert live_value(path_of(name), ROOT) == value
    undone = asyncio.run(undo_setting(control))
    assert undone is not None
    assert (undone.state, undone.message) == (ChangeState.REVERTED, "")
    assert kernel() == before, "also what the kernel had changed along with it"


def pages_needed(connection: psycopg.Connection[tuple[int]], major: int) -> int:
    """As the server says; before 15 from the shared memory it has."""
    return _one(connection, SAID) if major >= 15 else math.ceil(_one(connection, ADDED_UP) / PAGE)


def _one(connection: psycopg.Connection[tuple[int]], query: LiteralString) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.root
@pytest.mark.parametrize("major", [pytest.param(14, marks=pytest.mark.long), 18])
def test_huge_pages_are_raised_a_server_lives_in_them_and_both_are_restored(
    control: HostControl, make_server: Callable[..., Throwaway], major: int
) -> None:
    if default_page_bytes(ROOT) != PAGE:
        pytest.skip("huge pages of this kernel are of another size")
    small = make_server(major, shared_buffers="16MB", huge_pages="off")
    with psycopg.connect(conninfo(small)) as connection:
        need = pages_needed(connection, major)
    small.stop("immediate")
    pool = pool_of("vm.nr_hugepages", ROOT)
    assert isinstance(pool, HugePages)
    change = asyncio.run(control.apply("vm.nr_hugepages", str(pool.total + need)))
    if change.message:
        pytest.skip(f"no room for {need} huge pages here: {change.message}")
    try:
        server = make_server(major, shared_buffers="16MB", huge_pages="on")
    except ClusterProblem:
        left = pool_of("vm.nr_hugepages", ROOT)
        if left is not None and left.free - left.reserved < need:
            pytest.skip("another server on this machine was quicker to take the pages")
        raise
    with psycopg.connect(conninfo(server)) as connection:
        in_use = pool_of("vm.nr_hugepages", ROOT)
        assert isinstance(in_use, HugePages)
        used = in_use.total - in_use.free + in_use.reserved - (pool.total - pool.free + pool.reserved)
        assert need - 1 <= used <= need, "as many as were asked for, or one less where a size was rounded up"
        early = asyncio.run(undo_setting(control))
        assert early is not None
        kept = "more pages are in use; the kernel frees them when their last process ends" in early.message
        assert kept == (pool.free - pool.reserved < used), "they go at once where others were free before"
        assert connection.execute("SELECT 1").fetchone() == (1,)
    server.stop("fast")
    assert pool_of("vm.nr_hugepages", ROOT) == pool


@pytest.mark.root
def test_a_page_of_a_gigabyte_is_had_and_given_back(control: HostControl) -> None:
    name = "hugepages-1048576kB/nr_hugepages"
    before = pool_of(name, ROOT)
    if before is None or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8 * 2**30:
        pytest.skip("no pages of 1 GB in this kernel, or no memory to spare")
    try:
        change = asyncio.run(control.apply(name, str(before.total + 1)))
    except HostProblem as problem:
        pytest.skip(f"memory is fragmented: {problem.message}")
    after = pool_of(name, ROOT)
    assert after is not None
    assert (change.message, after.total) == ("", before.total + 1)
    asyncio.run(undo_setting(control))
    assert pool_of(name, ROOT) == before


@pytest.mark.root
def test_revert_finds_the_changes_of_a_process_that_is_gone(control: HostControl, tmp_path: Path) -> None:
    before = kernel()
    for name, value in (("vm.dirty_expire_centisecs", "2999"), ("vm.dirty_writeback_centisecs", "499")):
        asyncio.run(control.apply_set([WantedSetting(name, value)], Terms(reason="shorter")))

    def pgtop_tune(*words: str) -> str:
        argv = [sys.executable, "-m", "pgtop_tune", "revert", *words, "--journal", str(tmp_path)]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout

    listed = pgtop_tune("--list")
    assert "operating system of" in listed
    assert "vm.dirty_expire_centisecs: " in listed
    assert f", {os.getpid()}; shorter; --machine --set " in listed
    assert pgtop_tune("--machine", "--last").startswith("vm.dirty_writeback_centisecs: 499 → ")
    assert live_value(path_of("vm.dirty_expire_centisecs"), ROOT) == "2999"
    assert pgtop_tune("--machine").endswith("1 change reverted\n")
    assert kernel() == before
    assert pgtop_tune("--machine") == "nothing to revert\n"
