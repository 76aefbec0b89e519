"""Knobs of the operating system and advice on them: against this kernel, real servers, and arithmetic of our own."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice, AdviceFacts, Machine, MachineLook, machine_of
from pgtop_tune.advice.knobs.catalogue import BY_NAME as PARAMETERS
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.system import BY_NAME, GROUPS, KNOBS, knob_of
from pgtop_tune.advice.plan import plan, shared_memory_bytes
from pgtop_tune.advice.proposal import propose
from pgtop_tune.advice.rules.system import advise_setting, kind_of
from pgtop_tune.base.units import GB, MB
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.block_devices import ROOT, disks
from pgtop_tune.host.system_settings import names, settings
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.machine import Disk, DiskKind
from pgtop_tune.tui.dashboard.explain import PANE_METRICS
from tests.support.kernel import kernel_left_alone
from tests.support.machine_tree import USUAL, write
from tests.support.quick_server import QUICK
from tests.support.servers import Servers

PAGE = 2 * MB
DISKS = (
    Disk("nvme0n1", False, True, False, False),
    Disk("vda", True, False, True, False),
    Disk("sda", True, False, False, False),
    Disk("dm-0", True, False, False, True),
)
MACHINE = Machine(
    ram_bytes=64 * GB, swap_bytes=4 * GB, committed_bytes=GB, huge_page_bytes=PAGE, numa_nodes=2, disks=DISKS,
)  # fmt: skip
SERVER = AdviceFacts(
    major=18, ram_bytes=64 * GB, shared_buffers_bytes=16 * GB, max_connections=100, shared_memory_bytes=8480 * PAGE,
    machine=MACHINE,
)  # fmt: skip


def advised(name: str, facts: AdviceFacts) -> Advice | None:
    return advise_setting(name, facts, plan(facts))


def value(name: str, facts: AdviceFacts = SERVER, **machine: object) -> str | None:
    advice = advised(name, replace(facts, machine=replace(facts.machine or MACHINE, **machine)))
    assert advice is not None
    assert advice.because.endswith(".")
    return advice.value


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_every_knob_says_why_what_for_and_where_to_look(knob: Knob) -> None:
    assert knob.why.endswith(".")
    assert knob.trades.endswith(".")
    assert knob.panes
    assert set(knob.panes) <= set(PANE_METRICS)
    for other in knob.moves_with:
        assert other in BY_NAME or other in PARAMETERS or other == "io_combine_limit", other


def test_every_setting_of_a_machine_has_a_row_and_every_row_a_setting(tmp_path: Path) -> None:
    write(tmp_path, USUAL)
    there = names(tmp_path, ["nvme0n1"])
    assert "hugepages-1048576kB/nr_hugepages" in there
    assert [name for name in there if knob_of(name) is None] == []
    rows = [knob_of(name) for name in there]
    assert {knob.name for knob in rows if knob is not None} == set(BY_NAME)
    assert len(BY_NAME) == len(KNOBS)
    assert len(GROUPS) == 5


def test_what_is_advised_is_what_this_kernel_takes() -> None:
    """Values in bounds as numbers or among the kernel's own words, for all settings that this machine has."""
    devices = [path.name for path in (ROOT / "sys/block").iterdir()] if (ROOT / "sys/block").is_dir() else []
    found = settings(ROOT, devices)
    live = {setting.name: setting.live for setting in found if not isinstance(setting.live, Unavailable)}
    facts = replace(SERVER, machine=replace(MACHINE, live=live, disks=disks(devices, ROOT)))
    seen = 0
    for setting in (each for each in found if each.name in live):
        advice = advised(setting.name, facts)
        for wanted in (advice.value, advice.low, advice.high) if advice is not None else ():
            if wanted and setting.choices:
                seen += 1
                # A kernel may be built without a scheduler.
                assert wanted in setting.choices or setting.name.endswith("/scheduler"), setting
            elif wanted:
                seen += 1
                assert wanted.isdecimal(), setting
    assert seen > 10


def test_facts_of_this_machine_are_what_another_reader_of_proc_finds() -> None:
    control = HostControl(lambda: [os.getcwd()])
    with kernel_left_alone():
        machine = asyncio.run(control.facts())
        found, its_disks = asyncio.run(control.settings()), asyncio.run(control.disks())
        swappiness = Path("/proc/sys/vm/swappiness")
        theirs = swappiness.read_text().strip() if swappiness.exists() else None
    assert not isinstance(found, Unavailable)
    seen = machine_of(MachineLook(found, machine, its_disks))
    assert (seen.ram_bytes, seen.swap_bytes) == (psutil.virtual_memory().total, psutil.swap_memory().total)
    assert seen.live.get("vm.swappiness") == theirs
    proposal = propose(AdviceFacts(major=18, ram_bytes=seen.ram_bytes, shared_buffers_bytes=GB, machine=seen))
    for name in seen.live:
        assert not (name not in proposal.settings and name.startswith(("vm.", "kernel."))), name


def test_huge_pages_are_as_many_as_the_server_says_and_the_saving_is_worked_out() -> None:
    advice = advised("vm.nr_hugepages", SERVER)
    assert advice is not None
    assert (advice.value, advice.low, advice.high) == ("8480", "8480", "8904")
    # 16 GB in pages of 4 kB, 8 bytes for each.
    assert f"{16 * GB // 4096 * 8 // MB} MB of page tables" in advice.because
    # (16 GB + 1 GB) in pages of 2 MB.
    assert [(each.who, each.value) for each in advice.opinions] == [("autobase", "8704")]


def test_a_server_before_15_needs_the_pages_of_its_shared_memory() -> None:
    old = replace(SERVER, major=14, shared_memory_bytes=None)
    assert value("vm.nr_hugepages", old) == str(math.ceil((16 * GB * 1.05 + 64 * MB) / PAGE))


def test_small_shared_buffers_and_missing_facts_make_no_one_reserve_memory() -> None:
    small = replace(SERVER, ram_bytes=GB)
    assert value("vm.nr_hugepages", small) is None
    assert value("hugepages-1048576kB/nr_hugepages", small) == "0"
    assert advised("vm.nr_hugepages", AdviceFacts(major=18, machine=MACHINE)) is None
    assert advised("vm.swappiness", AdviceFacts(major=18)) is None, "the settings of another machine are not ours"


def test_a_pool_of_small_buffers_that_nobody_uses_is_given_back_and_one_in_use_is_not() -> None:
    small = replace(SERVER, ram_bytes=GB)
    live = {"vm.nr_hugepages": "2000"}
    assert value("vm.nr_hugepages", small, live=live, pools=(HugePages(PAGE, 2000, 1990, 90, 0),)) == "100"
    assert value("vm.nr_hugepages", small, live=live, pools=(HugePages(PAGE, 2000, 100, 0, 0),)) is None
    used = (HugePages(GB, 4, 1, 0, 0),)
    assert value("hugepages-1048576kB/nr_hugepages", small, pools=used) is None


def test_the_pages_are_those_of_the_buffers_to_be_and_those_that_others_have_stay_theirs() -> None:
    """HUGE-01 gave the pages of the running 6 GB where 9 GB were pending, and 20.6 GB for buffers to be given up."""
    large = replace(SERVER, shared_buffers_bytes=20 * GB, shared_memory_bytes=int(20.5 * GB), in_huge_pages=False)
    pages = int(value("vm.nr_hugepages", large) or 0)
    assert 16 * GB * 1.023 < pages * PAGE < 16 * GB * 1.05
    beside = (HugePages(PAGE, 1000, 100, 0, 0),)
    with_others = int(value("vm.nr_hugepages", large, pools=beside, live={"vm.nr_hugepages": "1000"}) or 0)
    # The server has a quarter of what the others leave.
    left = (64 * GB - 900 * PAGE) / 4
    assert left * 1.02 < (with_others - 900) * PAGE < left * 1.05
    crowded = (HugePages(PAGE, 16_000, 0, 0, 0),)
    refused = replace(large, machine=replace(MACHINE, pools=crowded, live={"vm.nr_hugepages": "16000"}))
    said = advised("vm.nr_hugepages", refused)
    assert said is not None
    assert said.value is None
    assert "more than 60 % of 64 GB" in said.because
    assert propose(refused).parameters["huge_pages"].value == "try"


def test_a_file_for_the_machine_alone_leaves_the_server_the_pages_it_starts_with() -> None:
    pool, live = (HugePages(PAGE, 10_600, 100, 0, 0),), {"vm.nr_hugepages": "10600"}
    large = replace(SERVER, shared_buffers_bytes=20 * GB, shared_memory_bytes=10_500 * PAGE, huge_pages="on",
                    in_huge_pages=True, machine=replace(MACHINE, pools=pool, live=live))  # fmt: skip
    proposal = propose(large)
    assert 8000 < int(proposal.settings["vm.nr_hugepages"].value or 0) < 9000
    assert proposal.machine_half()["vm.nr_hugepages"].value == "10600"


def test_strict_accounting_is_refused_where_nothing_new_would_start() -> None:
    """10539 pages and strict accounting together made a CommitLimit of 2.8 GB where 5.8 GB were committed."""
    live = {"vm.overcommit_memory": "0", "vm.overcommit_ratio": "50"}
    assert value("vm.overcommit_memory", live=live, committed_bytes=5 * GB) == "2"
    full = replace(SERVER, machine=replace(MACHINE, live=live, committed_bytes=60 * GB))
    for name in live:
        said = advised(name, full)
        assert said is not None
        assert said.value is None
        assert "43.4 GB are committed with the server as advised" in said.because
    # What the running server has committed is in huge pages after the restart.
    assert value("vm.overcommit_memory", live=live, committed_bytes=40 * GB) == "2"
    assert value("vm.overcommit_memory", committed_bytes=20 * GB, live={"vm.overcommit_memory": "2"}) == "2"


def test_pages_of_a_gigabyte_are_counted_for_large_buffers_only() -> None:
    large = replace(SERVER, ram_bytes=256 * GB, shared_buffers_bytes=64 * GB, shared_memory_bytes=33_900 * PAGE,
                    machine=replace(MACHINE, ram_bytes=256 * GB))  # fmt: skip
    advice = advised("hugepages-1048576kB/nr_hugepages", large)
    assert advice is not None
    assert advice.high == str(math.ceil(33_900 * PAGE / GB)) == "67"
    assert "huge_page_size=1048576kB" in advice.because


@given(ram_gb=st.integers(8, 4096), huge_share=st.floats(0, 0.3), swap=st.integers(0, 64))
def test_the_overcommit_ratio_grants_the_memory_there_is_and_no_more(ram_gb: int, huge_share: float, swap: int) -> None:
    pages = int(ram_gb * GB * huge_share / PAGE)
    machine = replace(MACHINE, ram_bytes=ram_gb * GB, swap_bytes=swap * GB, committed_bytes=0,
                      pools=(HugePages(PAGE, pages, 0, 0, 0),), live={"vm.nr_hugepages": str(pages)})  # fmt: skip
    facts = replace(SERVER, ram_bytes=ram_gb * GB, in_huge_pages=False, machine=machine)
    drawn, ratio = plan(facts), value("vm.overcommit_ratio", facts)
    assert drawn is not None
    assert drawn.pages is not None
    assert ratio is not None
    pages = drawn.pages
    # CommitLimit as the kernel computes it (mm/util.c), without swap, and what is left beside the huge pages.
    limit = (ram_gb * GB - pages * PAGE) * int(ratio) // 100
    free = ram_gb * GB * 95 // 100 - pages * PAGE
    assert free - (ram_gb * GB - pages * PAGE) // 100 - 1 <= limit <= free


def test_disks_get_the_order_that_suits_them() -> None:
    assert [value(f"{disk.name}/scheduler") for disk in DISKS] == ["none", "none", "mq-deadline", None]
    assert [kind_of(disk) for disk in DISKS[:3]] == [DiskKind.NVME, None, DiskKind.HDD]
    assert value("sda/read_ahead_kb") == "4096"
    assert advised("sdz/scheduler", SERVER) is None
    assert advised("vda/read_ahead_kb", SERVER) is None, "a virtual disk does not say what it is"


def test_what_would_change_nothing_is_not_advised() -> None:
    assert value("vm.swappiness") == "5"
    assert value("vm.swappiness", swap_bytes=0) is None
    assert value("kernel.numa_balancing") == "0"
    assert value("kernel.numa_balancing", numa_nodes=1) is None
    assert value("vm.min_free_kbytes") == str(int(64 * GB * 0.002) // 1024)
    assert value("vm.min_free_kbytes", live={"vm.min_free_kbytes": "999999"}) == "999999"


@pytest.mark.parametrize("running_mb", [128, 20 * 1024])
def test_the_estimate_for_other_buffers_holds_the_shared_memory_and_is_near(servers: Servers, running_mb: int) -> None:
    """postgres -C works out what a server of 1 to 64 GB would take, without taking it."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        with Throwaway.create(servers.binaries(18), keep=Path(directory) / "kept", settings=QUICK) as model:
            pass
        running = _shared_memory_mb(model, running_mb, 300)
        for size_gb in (1, 8, 64):
            # Fewer connections in the end: what is advised never asks for more.
            real = _shared_memory_mb(model, size_gb * 1024, 100)
            known = AdviceFacts(major=18, shared_buffers_bytes=running_mb * MB, shared_memory_bytes=running * MB)
            for facts in (known, AdviceFacts(major=14)):
                assert real <= shared_memory_bytes(facts, size_gb * GB) / MB <= real * 1.15


def _shared_memory_mb(model: Throwaway, buffers_mb: int, connections: int) -> int:
    owner = Path(str(model.data_dir)).stat()
    words = ["-C", "shared_memory_size", "-D", str(model.data_dir), "-c", f"shared_buffers={buffers_mb}MB"]
    done = subprocess.run(
        [str(model.bin_dir / "postgres"), *words, "-c", f"max_connections={connections}"],
        capture_output=True, text=True, user=owner.st_uid, group=owner.st_gid, cwd="/", check=True,
    )  # fmt: skip
    return int(done.stdout)
