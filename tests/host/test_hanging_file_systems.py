"""File systems that hang, made for real: whoever looks at them in our own process could not be ended."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.host.block_devices import ROOT, carriers
from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.psutil_source import PsutilHost
from pgtop_tune.model.absence import NOT_RECORDED, Reason, Unavailable
from pgtop_tune.model.host import FileSystemSample
from pgtop_tune.model.machine import ServerPlaces
from pgtop_tune.process.mount_namespace import namespace_of
from pgtop_tune.process.path_looks import PathLooks
from pgtop_tune.sampling.host_sampler import HostSampler
from tests.support.hanging_mount import HangingMount, can_mount, hanging_mount
from tests.support.processes import children, eventually

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not can_mount(), reason="mounts a file system: as root, with /dev/fuse"),
]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[HangingMount]:
    point = tmp_path / "far"
    point.mkdir()
    with hanging_mount(point) as mounted:
        yield mounted


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[PathLooks]:
    """Of this test alone, and less patient."""
    made = PathLooks(patience_s=0.3)
    monkeypatch.setattr("pgtop_tune.process.mount_namespace.LOOKS", made)
    yield made
    made.close()


def test_one_process_waits_for_a_mount_and_never_a_second(mount: HangingMount, looks: PathLooks) -> None:
    mount.hang()
    before = set(children(os.getpid()))
    for path in ("x", "y", "x"):
        with pytest.raises(TimeoutError, match="does not answer"):
            looks.stat(str(mount.point / path), "far")
    assert looks.stat("/", "near").st_ino == os.stat("/").st_ino
    assert looks.statvfs("/", "near").f_blocks == os.statvfs("/").f_blocks
    assert len(set(children(os.getpid())) - before) == 2
    assert looks.hangs("far")
    mount.end()
    assert eventually(lambda: not looks.hangs("far"))
    assert eventually(lambda: len(set(children(os.getpid())) - before) == 1)


def test_the_path_of_a_hanging_mount_is_told_and_the_others_are_found(
    mount: HangingMount, looks: PathLooks, tmp_path: Path
) -> None:
    """Also where a link leads there, and from then on without waiting."""
    link = tmp_path / "pg_wal"
    link.symlink_to(mount.point / "wal")
    mount.hang()
    for directory in (mount.point / "ts", link):
        found = carriers(str(directory))
        assert isinstance(found, Unavailable)
        assert found.reason is Reason.NO_ANSWER
        assert found.detail == f"{directory} (fuse at {mount.point}) does not answer"
    namespace = namespace_of(None, ROOT)
    held = namespace.mount(str(link))
    assert held is not None
    assert held.point == str(mount.point)
    assert namespace.real_path("/") == "/"


@pytest.mark.parametrize("source", [LocalHost, PsutilHost])
def test_a_machine_shows_everything_but_the_mount_that_hangs(
    source: type[LocalHost | PsutilHost], mount: HangingMount, looks: PathLooks, tmp_path: Path
) -> None:
    host = source(time.monotonic)
    threads = threading.active_count()
    mount.hang()
    (tmp_path / "pg_wal").mkdir()
    host.set_directories(str(tmp_path), ServerPlaces(tablespaces=(("far", str(mount.point / "ts")),)))

    def sample() -> FileSystemSample | None:
        found = host.sample([os.getpid()]).file_systems
        return None if isinstance(found, Unavailable) else found

    assert eventually(lambda: (found := sample()) is not None and bool(found.file_systems and found.unanswered))
    found = sample()
    assert found is not None
    assert [row.roles for row in found.file_systems] == [("data", "wal")]
    (silent,) = found.unanswered
    assert silent.startswith(str(mount.point))
    assert silent.endswith("does not answer")
    assert not isinstance(host.sample([os.getpid()]).cpu, Unavailable)
    disks = host.sample([os.getpid()]).disks
    assert isinstance(disks, Unavailable) or any("does not answer" in each for each in disks.unplaced)
    assert eventually(lambda: threading.active_count() <= threads)
    host.close()


class _Eye:
    """A server with a tablespace."""

    def __init__(self, places: ServerPlaces) -> None:
        self._places = places

    async def places(self) -> ServerPlaces:
        return self._places

    async def server_files(self, paths: object) -> Unavailable:
        return NOT_RECORDED


async def test_a_mount_that_answers_again_has_its_roles(mount: HangingMount, looks: PathLooks, tmp_path: Path) -> None:
    now_s = 0.0
    places = ServerPlaces(tablespaces=(("far", str(mount.point)),))
    me = os.getpid()
    host = LocalHost(lambda: now_s)
    sampler = HostSampler(host, True, lambda: (me, None), _Eye(places), lambda: now_s)
    mount.hang()
    host.set_directories(str(tmp_path), places)
    sampler._directory, sampler._places = str(tmp_path), places

    async def unplaced() -> str:
        nonlocal now_s
        now_s += 6.0
        found = await sampler.look(NOT_RECORDED, (), 1.0)
        assert not isinstance(found, Unavailable)
        disks, silent = found.disks, found.file_systems
        assert not isinstance(silent, Unavailable)
        return f"{silent.unanswered} {disks if isinstance(disks, Unavailable) else disks.unplaced}"

    async def comes(words: str, *, there: bool) -> bool:
        deadline = time.monotonic() + 60
        while (words in await unplaced()) is not there and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return (words in await unplaced()) is there

    assert await comes("does not answer", there=True)
    mount.answer()
    assert await comes("does not answer", there=False)
    assert await comes("far: ", there=True)
    sampler.close()


def test_a_mount_that_hangs_in_the_middle_and_comes_back(mount: HangingMount, looks: PathLooks, tmp_path: Path) -> None:
    now_s = 0.0
    host = LocalHost(lambda: now_s)
    (tmp_path / "pg_wal").mkdir()
    host.set_directories(str(tmp_path), ServerPlaces(tablespaces=(("far", str(mount.point)),)))

    def rows() -> tuple[int, int]:
        nonlocal now_s
        now_s += 6.0
        found = host.sample([]).file_systems
        return (0, 0) if isinstance(found, Unavailable) else (len(found.file_systems), len(found.unanswered))

    assert eventually(lambda: rows() == (2, 0))
    mount.hang()
    assert eventually(lambda: rows() == (1, 1))
    mount.end()
    # The directory that it was mounted on.
    assert eventually(lambda: rows() == (2, 0))
    host.close()
