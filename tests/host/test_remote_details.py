"""Settings of a machine elsewhere, through the server, are those that its own files have."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.machine_setup import machine_details
from pgtop_tune.host.remote_details import remote_details
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import resolve
from tests.host.test_machine_details import DIRECTORIES, FILES
from tests.support.kernel import kernel_left_alone, sysctl
from tests.support.machine_tree import write
from tests.support.servers import conninfo

STAT = "701 (postgres) S 700 " + " ".join(["0"] * 48) + "\n"


async def test_they_are_the_same_but_for_what_stands_in_etc(tmp_path: Path) -> None:
    write(tmp_path, {**FILES, "proc/self/stat": STAT, "etc/sysctl.conf": "vm.swappiness = 1\n"})

    async def read(paths: Sequence[str]) -> list[bytes | None] | Unavailable:
        files = [tmp_path / path.lstrip("/") for path in paths]
        return [file.read_bytes() if file.is_file() else None for file in files]

    found = await remote_details(read, {"nvme0n1": False}, DIRECTORIES, 2)
    assert not isinstance(found, Unavailable)
    here = machine_details(tmp_path, ["nvme0n1"], DIRECTORIES, 700)
    assert [(each.name, each.live) for each in found.settings if "hugepages-" not in each.name] == [
        (each.name, each.live) for each in here.settings if "hugepages-" not in each.name
    ]
    assert all(each.after_reboot.not_read and not each.after_reboot.assignments for each in found.settings)
    assert found.numa_nodes == 2
    postmaster = here.postmaster
    assert not isinstance(postmaster, Unavailable)
    # Which processes are its children is not asked for.
    assert found.postmaster == replace(postmaster, children_adj=None)
    assert (found.queues, found.clock_source) == (here.queues, here.clock_source)
    assert [mount.point for mount in found.mounts] == [mount.point for mount in here.mounts]


async def test_where_pg_wal_lies_cannot_be_told_over_sql_unless_it_is_a_mount(tmp_path: Path) -> None:
    async def unplaced(mounts: str) -> Sequence[str]:
        write(tmp_path, {**FILES, "proc/self/stat": STAT, "proc/self/mountinfo": mounts})

        async def read(paths: Sequence[str]) -> list[bytes | None] | Unavailable:
            files = [tmp_path / path.lstrip("/") for path in paths]
            return [file.read_bytes() if file.is_file() else None for file in files]

        found = await remote_details(read, {}, DIRECTORIES, 1)
        assert not isinstance(found, Unavailable)
        return found.unplaced

    wal = "31 30 259:3 / /pg/data/pg_wal rw,noatime shared:3 - xfs /dev/nvme1n1 rw\n"
    assert await unplaced(FILES["proc/self/mountinfo"]) == ("wal",)
    assert await unplaced(FILES["proc/self/mountinfo"] + wal) == ()


async def test_a_server_that_does_not_hand_out_its_files_says_why() -> None:
    refusal = Unavailable(Reason.NO_PERMISSION, "permission denied for function pg_read_binary_file")

    async def read(paths: Sequence[str]) -> list[bytes | None] | Unavailable:
        return refusal

    assert await remote_details(read, {}, {}, 1) == refusal


async def test_a_real_server_hands_out_its_machine(server: Throwaway) -> None:
    reader = PostgresReader(resolve(conninfo(server)), time.monotonic)
    with kernel_left_alone():
        try:
            facts = await reader.connect()
            found = await remote_details(reader.server_files, {}, {"data": facts.data_directory}, 1)
        finally:
            await reader.aclose()
        here = sysctl("vm.swappiness")
    assert not isinstance(found, Unavailable)
    assert found.live("vm.swappiness") == here
    assert not isinstance(found.postmaster, Unavailable)
    assert [mount.roles for mount in found.mounts] == [("data",)]


@pytest.mark.parametrize("major", [14, 18])
async def test_a_data_directory_behind_a_link_is_found_by_the_files_that_a_backend_has_open(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int
) -> None:
    """The path leads through a link from the disk into memory, where the server's files are."""
    server = make_server(major)
    data = str(server.data_dir)
    if not data.startswith("/dev/shm/"):
        pytest.skip("no server in memory here")
    (tmp_path / "linked").symlink_to(data)
    reader = PostgresReader(resolve(conninfo(server)), time.monotonic)
    try:
        await reader.connect()
        directories = {"data": f"{tmp_path}/linked", "wal": f"{tmp_path}/linked/pg_wal"}
        found = await remote_details(reader.server_files, {}, directories, 1)
    finally:
        await reader.aclose()
    assert not isinstance(found, Unavailable)
    assert [(mount.kind, mount.roles) for mount in found.mounts] == [("tmpfs", ("data",))]
    assert found.unplaced == ("wal",)
