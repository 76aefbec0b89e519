"""A journal that is moved, removed, replaced or closed between a change and its deadline keeps no value in force."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.confirm.pending_sets import PendingSets
from pgtop_tune.changes.journal import folded, journals, read, read_all, write_owed
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import ChangeState, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.commands.watch.session import ScreenSession
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.process.revert_watchdog import RevertWatchdog
from pgtop_tune.runtime.run_frames import FrameKeeper
from tests.cli.runs import run
from tests.cli.test_set import setting, shown, until
from tests.postgres.conftest import place
from tests.support.machine_tree import USUAL, write
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
    *_long(file_emptied, directory_removed, file_in_its_place, link_that_leads_nowhere, file_replaced_by_a_pipe),
)


@pytest.mark.parametrize("lose", LOSSES)
def test_the_program_says_that_its_journal_is_gone_and_reverts_all_the_same(
    own: Throwaway, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    with setting(own, tmp_path, "work_mem=8MB", "--for", "1h") as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("reverts after"))
        lose(tmp_path / STATE)
        next(line for line in process.stderr if "work_mem = 8MB is in force, and " in line)
        hint = next(process.stderr)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert out.splitlines()[-1].startswith("work_mem: 8MB → 4MB")
    assert 'ALTER SYSTEM RESET "work_mem"; SELECT pg_reload_conf();' in hint
    assert "already reverted" not in out + err
    assert shown(own, "work_mem") == "4MB"


@pytest.mark.parametrize("lose", [directory_moved, *_long(file_in_its_place)])
def test_the_watchdog_of_a_killed_program_reverts_without_the_journal(
    own: Throwaway, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    with setting(own, tmp_path, "maintenance_work_mem=80MB", "--for", "1h") as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("reverts after"))
        (owner,) = read(journals(tmp_path / STATE)[0]).owners.values()
        lose(tmp_path / STATE)
        process.kill()
        until(lambda: shown(own, "maintenance_work_mem") == "64MB")
        # It has done all that there was to do.
        assert owner.watchdog is not None
        until(lambda: not owner.watchdog.lives)


def test_a_set_that_no_journal_has_is_not_called_reverted(own: Throwaway, tmp_path: Path) -> None:
    ran = run("revert", "--set", "abcdef123456", "-d", conninfo(own), home=tmp_path)
    assert ran.status == 6
    assert "has the change set abcdef123456: the set may still be in force" in ran.err
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
    with setting(own, tmp_path, "work_mem=8MB", "maintenance_work_mem=80MB", "--for", "1h") as process:
        until(lambda: shown(own, "maintenance_work_mem") == "80MB")
        (journal,) = until_found(tmp_path / STATE)
        until(lambda: len(read(journal).in_force) == 2 and read(journal).in_force[1].state is ChangeState.APPLIED)
        is_full(process.pid, journal)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert (shown(own, "work_mem"), shown(own, "maintenance_work_mem")) == ("4MB", "64MB")
    words = f"the journal {journal} could not be written (File too large): it shows the change as in force"
    assert out.count(words) == 2
    assert len(read(journal).in_force) == 2
    ran = run("revert", "-d", conninfo(own), home=tmp_path)
    assert ran.status == 0, ran.err
    assert ran.out.splitlines()[-1] == "2 already had the old value"
    assert read(journal).in_force == ()


async def test_lines_that_a_disk_refused_count_in_the_program_and_are_written_later(
    own: Throwaway, tmp_path: Path
) -> None:
    control, directory, server = PostgresControl(place(own), directory=tmp_path), tmp_path, own
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
        assert "it shows reverted changes as in force" in problem.message
        with pytest.raises(JournalProblem, match="File too large"):
            await control.apply_set((WantedParameter("work_mem", "8MB"),), Terms())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert write_owed() == ()
    assert folded(path.read_bytes()).in_force == ()
    await control.aclose()


async def test_what_no_journal_has_is_not_confirmed(own: Throwaway, tmp_path: Path) -> None:
    server, host = PostgresControl(place(own), directory=tmp_path / "journal"), machine_of(tmp_path)
    pending = PendingSets(ChangeSets(server, host), lambda event: None)
    wanted = ChangeSet(
        parameters=(WantedParameter("work_mem", "8MB"),), settings=(WantedSetting("vm.swappiness", "1"),)
    )
    try:
        await pending.apply(wanted, Terms(keep_within_s=600.0))
        (tmp_path / "journal").rename(tmp_path / "moved")
        with pytest.raises(
            JournalProblem, match=r"not confirmed, so it reverts at its deadline: .* is in force, and no"
        ):
            await pending.confirm()
        assert pending.current is not None
        lost = await host.lost(pending.current.set_id)
        assert lost is not None
        assert "vm.swappiness=60" in lost.hint
        settled = await pending.revert_now(pending.current.set_id)
        assert [each.shown_after for each in settled.checked().changes] == ["60", "4MB"]
        assert (await server.in_force(), await host.in_force(), shown(own, "work_mem")) == ((), (), "4MB")
        assert not (tmp_path / "journal").exists()
    finally:
        await server.aclose()
        await host.aclose()


async def test_a_full_disk_refuses_a_confirmation_and_the_machine_s_half_goes_back_all_the_same(
    own: Throwaway, tmp_path: Path
) -> None:
    server, host = PostgresControl(place(own), directory=tmp_path / "journal"), machine_of(tmp_path)
    sets = ChangeSets(server, host)
    wanted = ChangeSet(
        parameters=(WantedParameter("work_mem", "8MB"),), settings=(WantedSetting("vm.swappiness", "1"),)
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        made = await sets.apply(wanted, Terms(keep_within_s=600.0))
        # Kernel files of the tree and the server are no shorter than this.
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
        with pytest.raises(JournalProblem, match=r"not confirmed, so it reverts at its deadline: .*File too large"):
            await sets.confirm(made.set_id)
        settled = (await sets.revert(made.set_id)).checked()
        assert [each.shown_after for each in settled.changes] == ["60", "4MB"]
        assert all("it shows the change as in force until the next start" in each.message for each in settled.changes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        write_owed()
        await server.aclose()
        await host.aclose()
    assert [text.ids_in_force for text in read_all(tmp_path / "journal").texts.values()] == [frozenset(), frozenset()]


async def test_the_screen_says_that_journals_cannot_be_read_and_goes_on(own: Throwaway, tmp_path: Path) -> None:
    place_of_journals = tmp_path / "journal"
    place_of_journals.write_text("")
    session = ScreenSession(place(own), LiveOptions(0.5, journal_directory=place_of_journals), FrameKeeper(most=10))
    told: list[str] = []
    try:
        async with asyncio.timeout(60):
            async for step in session.steps():
                told += [event.text for frame in step.frames for event in frame.events]
                if any("unconfirmed changes may be in force" in text for text in told):
                    break
    finally:
        await session.aclose()
    (words,) = (text for text in told if "unconfirmed changes" in text)
    assert f"the change journals in {place_of_journals} cannot be read: Not a directory; move away the file" in words


async def test_a_set_without_a_half_of_the_machine_does_not_ask_for_the_machine_s_journal(
    own: Throwaway, tmp_path: Path
) -> None:
    server, host = PostgresControl(place(own), directory=tmp_path / "journal"), machine_of(tmp_path)
    sets = ChangeSets(server, host)
    try:
        wanted = ChangeSet(parameters=(WantedParameter("work_mem", "8MB"),))
        made = await sets.apply(wanted, Terms(keep_within_s=600.0))
        file_in_its_place(tmp_path / "journal")
        (back,) = (await sets.revert(made.set_id)).checked().changes
        assert (back.shown_after, shown(own, "work_mem")) == ("4MB", "4MB")
    finally:
        await server.aclose()


def machine_of(directory: Path) -> HostControl:
    write(directory / "root", USUAL)
    return HostControl(root=directory / "root", directory=directory / "journal", guard=no_watchdog)


def no_watchdog(set_id: str, until_ms: int | None, directory: Path | None) -> RevertWatchdog:
    """It would look at the machine of the test, not at a tree of files."""
    return RevertWatchdog(["/bin/true"], os.environ)


def until_found(directory: Path) -> tuple[Path, ...]:
    until(lambda: bool(journals(directory)))
    return journals(directory)
