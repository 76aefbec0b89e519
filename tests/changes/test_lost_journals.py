"""A journal that is moved, removed, replaced or closed between a change and its deadline keeps no value in force."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgtop_tune.changes.journal import folded, journals, read, write_owed
from pgtop_tune.changes.model.change import ChangeState, Terms, WantedParameter
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.errors import JournalProblem
from tests.cli.runs import run
from tests.cli.test_set import setting, shown, until
from tests.postgres.conftest import place
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo

STATE = Path(".local/state/pgtop-tune/journal")


@pytest.fixture(scope="module")
def own(servers: Servers) -> Iterator[Throwaway]:
    server = quick_server(servers.binaries(18))
    yield server
    server.stop("immediate")


def directory_moved(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def directory_removed(directory: Path) -> None:
    shutil.rmtree(directory)


def file_in_its_place(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.write_text("not a directory\n")


def link_that_leads_nowhere(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.symlink_to("nowhere")


def file_emptied(directory: Path) -> None:
    (journal,) = directory.glob("*.jsonl")
    journal.write_bytes(b"")


def file_replaced_by_a_pipe(directory: Path) -> None:
    (journal,) = directory.glob("*.jsonl")
    journal.unlink()
    os.mkfifo(journal)


def _long(*losses: Callable[[Path], None]) -> list[object]:
    return [pytest.param(lose, marks=pytest.mark.long) for lose in losses]


LOSSES = (
    directory_moved,
    file_emptied,
    *_long(directory_removed, file_in_its_place, link_that_leads_nowhere, file_replaced_by_a_pipe),
)


@pytest.mark.parametrize("lose", LOSSES)
def test_the_program_reverts_at_its_deadline_and_says_at_once_that_its_journal_is_gone(
    own: Throwaway, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    with setting(own, tmp_path, "work_mem=8MB", "--for", "4s") as process:
        until(lambda: shown(own, "work_mem") == "8MB")
        lose(tmp_path / STATE)
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert out.splitlines()[-1].startswith("work_mem: 8MB → 4MB")
    assert "work_mem = 8MB is in force, and " in err
    assert 'ALTER SYSTEM RESET "work_mem"; SELECT pg_reload_conf();' in err
    assert "already reverted" not in out + err
    assert shown(own, "work_mem") == "4MB"


@pytest.mark.parametrize("lose", [directory_moved, *_long(file_in_its_place)])
def test_the_watchdog_of_a_killed_program_reverts_without_the_journal(
    own: Throwaway, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    with setting(own, tmp_path, "maintenance_work_mem=80MB", "--for", "1h") as process:
        until(lambda: shown(own, "maintenance_work_mem") == "80MB")
        lose(tmp_path / STATE)
        process.kill()
        until(lambda: shown(own, "maintenance_work_mem") == "64MB")


def test_a_set_that_no_journal_has_is_not_called_reverted(own: Throwaway, tmp_path: Path) -> None:
    ran = run("revert", "--set", "abcdef123456", "-d", conninfo(own), home=tmp_path)
    assert ran.status == 6
    assert "has the set abcdef123456: it may be in force" in ran.err
    (tmp_path / STATE.parent).mkdir(parents=True)
    (tmp_path / STATE).write_text("")
    for words in (("revert", "-d", conninfo(own)), ("revert", "--list"), ("revert", "--machine")):
        ran = run(*words, home=tmp_path)
        assert ran.status == 6, words
        assert f"{STATE} cannot be read: Not a directory" in ran.err
        assert ran.out == ""


def is_full(pid: int, journal: Path) -> None:
    """No file of the process gets longer than the journal is now."""
    size = journal.stat().st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_keeps_no_value_in_force_and_the_next_program_settles_the_journal(
    own: Throwaway, tmp_path: Path
) -> None:
    with setting(own, tmp_path, "work_mem=8MB", "maintenance_work_mem=80MB", "--for", "3s") as process:
        until(lambda: shown(own, "maintenance_work_mem") == "80MB")
        (journal,) = until_found(tmp_path / STATE)
        until(lambda: len(read(journal).in_force) == 2 and read(journal).in_force[1].state is ChangeState.APPLIED)
        is_full(process.pid, journal)
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert (shown(own, "work_mem"), shown(own, "maintenance_work_mem")) == ("4MB", "64MB")
    words = f"the journal {journal} could not be written (File too large): it shows the change as in force"
    assert out.count(words) == 2
    assert len(read(journal).in_force) == 2
    ran = run("revert", "-d", conninfo(own), home=tmp_path)
    assert ran.status == 0, ran.err
    assert ran.out.splitlines()[-1] == "2 had the old value already"
    assert read(journal).in_force == ()


def test_lines_that_a_disk_refused_count_in_the_program_and_are_written_later(own: Throwaway, tmp_path: Path) -> None:
    """The program goes on: its revert is not told twice, and the server is not asked again."""
    asyncio.run(_owed_and_paid(own, tmp_path))


async def _owed_and_paid(server: Throwaway, directory: Path) -> None:
    control = PostgresControl(place(server), directory=directory)
    (made,) = await control.apply_set((WantedParameter("work_mem", "8MB"),), Terms(keep_within_s=600.0))
    (path,) = journals(directory)
    size = path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        (back,) = await control.revert_set(made.set_id)
        assert (back.shown_after, shown(server, "work_mem")) == ("4MB", "4MB")
        assert "could not be written (File too large)" in back.message
        assert path.stat().st_size == size
        assert await control.in_force() == ()
        (problem,) = write_owed()
        assert "it shows changes as in force that are reverted" in problem.message
        with pytest.raises(JournalProblem, match="File too large"):
            await control.apply_set((WantedParameter("work_mem", "8MB"),), Terms())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert write_owed() == ()
    assert folded(path.read_bytes()).in_force == ()
    await control.aclose()


def until_found(directory: Path) -> tuple[Path, ...]:
    until(lambda: bool(journals(directory)))
    return journals(directory)
