"""Knobs of the operating system and advice on them: against this kernel, real servers, and arithmetic of our own."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import tempfile
from pathlib import Path

import psutil
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.advice.facts import DiskKind, Facts
from pgtop_tune.advice.knobs.catalogue import BY_NAME as PARAMETERS
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.system import BY_NAME, GROUPS, KNOBS, knob_of
from pgtop_tune.advice.rules.system import SystemFacts, advise_system, huge_pages_needed, kind_of, system_facts
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.block_queue import Disk, disks
from pgtop_tune.host.system_settings import names, settings
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.tui.scene.explain import PANE_METRICS
from pgtop_tune.units import GB, MB
from tests.support.kernel import kernel_left_alone
from tests.support.machine_tree import USUAL, write
from tests.support.quick_server import QUICK
from tests.support.servers import Servers, conninfo

PAGE = 2 * MB
SERVER = Facts(
    major=18, ram_bytes=64 * GB, shared_buffers_bytes=16 * GB, max_connections=300, huge_page_bytes=PAGE,
    huge_pages_needed=8480,
)  # fmt: skip
DISKS = (
    Disk("nvme0n1", False, True, False, False),
    Disk("vda", True, False, True, False),
    Disk("sda", True, False, False, False),
    Disk("dm-0", True, False, False, True),
)
MACHINE = SystemFacts(server=SERVER, swap_bytes=4 * GB, numa_nodes=2, disks=DISKS)


def value(name: str, facts: SystemFacts = MACHINE) -> str | None:
    advice = advise_system(name, facts)
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
    facts = replace(MACHINE, live=live, disks=disks(devices, ROOT))
    seen = 0
    for setting in (each for each in found if each.name in live):
        advice = advise_system(setting.name, facts)
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
    facts = system_facts(Facts(major=18, shared_buffers_bytes=GB), machine, found, its_disks)
    assert (facts.server.ram_bytes, facts.swap_bytes) == (psutil.virtual_memory().total, psutil.swap_memory().total)
    assert facts.live.get("vm.swappiness") == theirs
    for setting in found:
        assert not (advise_system(setting.name, facts) is None and setting.name.startswith(("vm.", "kernel."))), setting


def test_huge_pages_are_as_many_as_the_server_says_and_the_saving_is_worked_out() -> None:
    advice = advise_system("vm.nr_hugepages", MACHINE)
    assert advice is not None
    assert (advice.value, advice.low, advice.high) == ("8480", "8480", "8904")
    assert "shared_memory_size_in_huge_pages" in advice.because
    # 16 GB in pages of 4 kB, 8 bytes for each.
    assert f"{16 * GB // 4096 * 8 // MB} MB of page tables" in advice.because
    # (16 GB + 1 GB) in pages of 2 MB.
    assert [(each.who, each.value) for each in advice.opinions] == [("autobase", "8704")]


def test_a_server_before_15_needs_the_pages_of_its_shared_memory() -> None:
    old = replace(MACHINE, server=replace(SERVER, major=14, huge_pages_needed=None), shared_memory_bytes=17 * GB + 1)
    assert value("vm.nr_hugepages", old) == str(17 * 512 + 1)


def test_small_shared_buffers_and_missing_facts_make_no_one_reserve_memory() -> None:
    small = replace(MACHINE, server=replace(SERVER, shared_buffers_bytes=128 * MB, huge_pages_needed=80))
    assert value("vm.nr_hugepages", small) is None
    assert value("hugepages-1048576kB/nr_hugepages", small) == "0"
    assert advise_system("vm.nr_hugepages", SystemFacts(Facts(major=18))) is None


def test_pages_of_a_gigabyte_are_counted_for_large_buffers_only() -> None:
    large = replace(MACHINE, server=replace(SERVER, shared_buffers_bytes=64 * GB, huge_pages_needed=33_900))
    advice = advise_system("hugepages-1048576kB/nr_hugepages", large)
    assert advice is not None
    assert advice.high == str(math.ceil(33_900 * PAGE / GB)) == "67"
    assert "huge_page_size=1048576kB" in advice.because


@given(ram_gb=st.integers(1, 4096), huge_share=st.floats(0, 0.9), swap=st.integers(0, 64), in_pages=st.booleans())
def test_the_overcommit_ratio_grants_the_memory_there_is_and_no_more(
    ram_gb: int, huge_share: float, swap: int, in_pages: bool
) -> None:
    pages = int(ram_gb * GB * huge_share / PAGE) if in_pages else 0
    facts = replace(
        MACHINE,
        server=replace(SERVER, ram_bytes=ram_gb * GB),
        swap_bytes=swap * GB,
        live={"vm.nr_hugepages": str(pages)},
    )
    ratio = value("vm.overcommit_ratio", facts)
    assert ratio is not None
    # CommitLimit as the kernel computes it (mm/util.c), without swap, and what is left beside the huge pages.
    limit = (ram_gb * GB - pages * PAGE) * int(ratio) // 100
    free = ram_gb * GB * 95 // 100 - pages * PAGE
    assert free - (ram_gb * GB - pages * PAGE) // 100 - 1 <= limit <= free


def test_disks_get_the_order_that_suits_them() -> None:
    assert [value(f"{disk.name}/scheduler") for disk in DISKS] == ["none", "none", "mq-deadline", None]
    assert [kind_of(disk) for disk in DISKS[:3]] == [DiskKind.NVME, None, DiskKind.HDD]
    assert value("sda/read_ahead_kb") == "4096"
    assert advise_system("sdz/scheduler", MACHINE) is None
    assert advise_system("vda/read_ahead_kb", MACHINE) is None, "a virtual disk does not say what it is"


def test_what_would_change_nothing_is_not_advised() -> None:
    assert value("vm.swappiness") == "5"
    assert value("vm.swappiness", replace(MACHINE, swap_bytes=0)) is None
    assert value("kernel.numa_balancing") == "0"
    assert value("kernel.numa_balancing", replace(MACHINE, numa_nodes=1)) is None
    assert value("vm.min_free_kbytes") == str(int(64 * GB * 0.002) // 1024)
    assert value("vm.min_free_kbytes", replace(MACHINE, live={"vm.min_free_kbytes": "999999"})) == "999999"


def test_the_estimate_without_the_servers_word_holds_the_shared_memory_and_is_near(servers: Servers) -> None:
    """postgres -C works out what a server of 1 to 64 GB would take, without taking it."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        with Throwaway.create(servers.binaries(18), keep=Path(directory) / "kept", settings=QUICK) as model:
            pass
        _compare(model)


def _compare(model: Throwaway) -> None:
    owner = model.data_dir.stat()
    for size_gb in (1, 8, 64):
        words = ["-C", "shared_memory_size_in_huge_pages", "-D", str(model.data_dir)]
        words += ["-c", f"shared_buffers={size_gb}GB"]
        done = subprocess.run(
            [str(model.bin_dir / "postgres"), *words, "-c", "max_connections=300"],
            capture_output=True, text=True, user=owner.st_uid, group=owner.st_gid, cwd="/", check=True,
        )  # fmt: skip
        guess = huge_pages_needed(SystemFacts(Facts(major=18, shared_buffers_bytes=size_gb * GB)), PAGE)
        assert guess is not None
        assert int(done.stdout) <= guess[0] <= int(done.stdout) * 1.1


def test_the_servers_own_number_is_used_for_pages_of_another_size(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT current_setting('shared_memory_size_in_huge_pages')").fetchone()
    assert row is not None
    facts = SystemFacts(Facts(major=18, huge_page_bytes=PAGE, huge_pages_needed=int(row[0])))
    assert huge_pages_needed(facts, PAGE) == (int(row[0]), "shared_memory_size_in_huge_pages")
    assert huge_pages_needed(facts, GB) == (1, f"{int(row[0]) * 2} MB of shared memory")
