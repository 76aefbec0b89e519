"""The host page: pictures, what is missing says why, many cores, hostile names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.host.psutil_source import PsutilHost
from pgtop_tune.metrics import host_details as details
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import (
    DiskSample,
    FileSystemSample,
    HostFacts,
    HostSample,
    HugePages,
    OtherProgram,
    ProcessSample,
    ThreadCounters,
)
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.host import host_lines
from pgtop_tune.tui.dialogs.help import explained, why_untold
from pgtop_tune.tui.pages.host import PAGE
from pgtop_tune.tui.pages.host_tables import DISKS, FILE_SYSTEMS, LIMITS, NETWORK, NUMA, PROCESSES
from pgtop_tune.tui.pages.listing import first_view, listing_lines, ordered
from pgtop_tune.tui.pages.page import PageTable
from pgtop_tune.tui.pages.screen import PageScreen
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text, width
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import frame, session_of
from tests.support.host_frames import capped_disks, full_host, full_session
from tests.support.pictures import assert_picture
from tests.support.screens import running_screen

GOLDENS = Path(__file__).parents[1] / "goldens"
SIZES = ((80, 24), (160, 48))


def session_with(seconds: int = 40, cores: int = 4, **sections: object) -> Session:
    session = Session(CHARTED)
    for second in range(seconds):
        session.apply(Step((frame(second, cores=cores, host=full_host(second, cores, **sections)),)))
    return session


def summary(session: Session, cells: int, rows: int) -> list[str]:
    lines = PAGE.summary(session, cells, rows, UNICODE)
    assert len(lines) == rows
    assert all(width(line) == cells for line in lines)
    return [plain_text(line) for line in lines]


def table_text(session: Session, table: PageTable, cells: int = 160, rows: int = 14) -> list[str]:
    view = replace(first_view(table), columns=frozenset(column.id for column in table.columns if column.visible))
    found = table.rows(session)
    shown = found if isinstance(found, Unavailable) else ordered(table, view, found)
    return [plain_text(line) for line in listing_lines(PAGE.tables, table, view, shown, cells, rows, UNICODE)]


def test_on_a_large_screen_the_half_under_the_figures_has_tables_instead_of_nothing() -> None:
    left = [line[:98] for line in summary(full_session(40), 200, 25)]
    assert sum(not line.strip() for line in left) <= 6
    assert any("file systems" in line for line in left)
    assert any("network" in line for line in left)
    assert not any("file systems" in line for line in summary(full_session(40), 120, 14)), "nor is there room"


@pytest.mark.parametrize(("cells", "rows"), SIZES, ids=lambda number: str(number))
def test_summary_and_tables_as_pictures(cells: int, rows: int) -> None:
    session = full_session(60)
    picture = summary(session, cells, min(PAGE.summary_rows(cells, rows), PAGE.summary_needs(session, cells)))
    for table in PAGE.tables:
        picture += table_text(session, table, cells)
    assert_picture(GOLDENS / f"page-host-{cells}x{rows}.txt", picture)


def test_the_table_gets_the_lines_that_the_summary_has_nothing_for() -> None:
    few, many = full_session(3), full_session(3, cores=384)
    assert plain_text(PAGE.summary(few, 158, PAGE.summary_needs(few, 158), UNICODE)[-1]).strip()
    assert PAGE.summary_needs(many, 158) == PAGE.summary_needs(few, 158) + 2


def test_every_one_of_384_cores_has_a_cell_where_there_is_room() -> None:
    strip = summary(full_session(3, cores=384), 158, 14)[2:5]
    assert sum(character in UNICODE.rising[1:] for line in strip for character in line) == 384


def test_one_full_core_among_384_is_seen_on_a_small_screen() -> None:
    def look(second: int) -> HostSample:
        host = full_host(second, 384)
        cores = tuple(
            replace(core, user_ticks=100 * second, idle_ticks=0, system_ticks=0, iowait_ticks=0)
            if core.cpu == "cpu200"
            else replace(core, user_ticks=0, idle_ticks=100 * second, system_ticks=0, iowait_ticks=0)
            for core in host.cpu.cores  # type: ignore[union-attr]
        )
        return replace(host, cpu=replace(host.cpu, cores=cores))  # type: ignore[type-var]

    session = Session(CHARTED)
    for second in range(3):
        session.apply(Step((frame(second, host=look(second)),)))
    strip = summary(session, 80, 8)[2]
    assert strip.count(UNICODE.full) == 1


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("disks", DISKS), ("file_systems", FILE_SYSTEMS), ("network", NETWORK), ("numa", NUMA), ("cgroup", LIMITS),
        ("processes", PROCESSES),
    ],
)  # fmt: skip
def test_a_section_that_is_missing_says_why_in_its_table(section: str, table: PageTable) -> None:
    why = Unavailable(Reason.NO_PERMISSION, "GRANT something TO somebody")
    session = session_with(3, **{section: why})
    assert "GRANT something TO somebody" in "\n".join(table_text(session, table))
    for other in PAGE.tables:
        if other is not table:
            assert not isinstance(other.rows(session), Unavailable)


def test_a_machine_that_cannot_be_seen_says_why_once_and_on_every_table() -> None:
    session = Session(CHARTED)
    session.apply(Step((frame(0, host=Unavailable(Reason.NOT_LOCAL, "the server runs elsewhere")),)))
    assert "the server runs elsewhere" in summary(session, 80, 8)[0]
    assert all("the server runs elsewhere" in "\n".join(table_text(session, table)) for table in PAGE.tables)
    assert summary(Session(), 80, 8)


def test_what_does_not_answer_and_what_has_no_disk_is_told_at_the_top() -> None:
    disks = replace(capped_disks(2), unplaced=("wal: whether pg_wal is a link cannot be seen",))
    systems = FileSystemSample(0.0, (), ("/far (nfs4): no answer for 12 s",))
    (_, note, *_) = summary(session_with(2, disks=disks, file_systems=systems), 158, 14)
    assert "/far (nfs4): no answer for 12 s" in note
    assert "whether pg_wal is a link" in note


def test_the_first_frame_has_gauges_and_no_rates() -> None:
    session = session_with(1)
    (wal,) = [line for line in table_text(session, FILE_SYSTEMS) if "/wal" in line]
    assert "50.0 GB" in wal
    assert all("-" in line for line in table_text(session, NETWORK)[2:4])


def test_where_the_numbers_are_from_is_said() -> None:
    facts = HostFacts("db-7", "6.1.0", "server's /proc over SQL", "boot-1", 4, 100, 4096, 1 << 34)
    assert "source: server's /proc over SQL" in summary(session_with(2, facts=facts), 80, 8)[0]


def test_over_sql_what_serves_no_session_is_the_postmaster() -> None:
    facts = HostFacts("db-7", "6.1.0", "server's /proc over SQL", "boot-1", 4, 100, 4096, 1 << 34)
    assert not any("pgtop-tune" in line for line in table_text(session_with(2, facts=facts), PROCESSES))


def test_the_largest_other_programs_are_listed_by_name_with_what_is_known_of_them() -> None:
    def change(second: int) -> dict[str, object]:
        host = full_host(second)
        assert isinstance(host.processes, ProcessSample)
        others = (OtherProgram(29_788, "\x1b[2Jpip", 93.0),)
        return {"host": replace(host, processes=replace(host.processes, others=others))}

    session = session_of(5, change=change)
    unordered = PROCESSES.rows(session)
    assert not isinstance(unordered, Unavailable)
    rows = ordered(PROCESSES, first_view(PROCESSES), unordered)
    cells = {column.id: column.text(rows[0]) for column in PROCESSES.columns}
    assert cells["pid"] == "29788"
    assert cells["kind"].startswith("other: ")
    assert "\x1b" not in cells["kind"]
    assert cells["cpu"] == "93"
    assert {cells[id] for id in ("run_delay", "read_bytes", "write_bytes", "rss", "state", "user")} == {"-"}
    assert len(rows) == 5
    assert rows[0].backend is None


def test_sessions_can_be_reached_from_their_processes() -> None:
    rows = PROCESSES.rows(session_with(3))
    assert not isinstance(rows, Unavailable)
    assert PROCESSES.backend_of is not None
    by_kind = {row.note: PROCESSES.backend_of(row) for row in rows}
    assert by_kind["postmaster"] is by_kind["pgbench"] is None
    assert by_kind["client backend"] is not None


def capped(seconds: int) -> Session:
    session = Session(CHARTED)
    for second in range(seconds):
        session.apply(Step((frame(second, host=full_host(second, disks=capped_disks(second))),)))
    return session


def test_a_disk_at_its_cap_is_marked_on_the_dashboard_and_in_its_row() -> None:
    below, at = capped(25), capped(40)
    said = "of 6000 IOPS, 90 MB/s  ◂ at its cap"
    assert "at its cap" not in "\n".join(plain_text(line) for line in host_lines(below, 140, 4, UNICODE))
    assert said in "\n".join(plain_text(line) for line in host_lines(at, 140, 4, UNICODE))
    assert "6000 IOPS, 90 MB/s" in "\n".join(table_text(at, DISKS))
    # Short of room the fact stays and its figures go.
    assert "at its cap" in "\n".join(plain_text(line) for line in host_lines(at, 80, 3, UNICODE))


def test_hostile_names_do_not_reach_the_screen_as_they_are() -> None:
    disks = capped_disks(2)
    evil = "\x1b]0;x\x07[red]\u202e" * 20
    rows = tuple(replace(disk, name=evil, roles=(f"tablespace {evil}",)) for disk in disks.disks)
    session = session_with(2, disks=DiskSample(2.0, rows))
    text = "\n".join(table_text(session, DISKS, 80))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_every_column_says_what_it_is() -> None:
    for table in PAGE.tables:
        assert len({column.id for column in table.columns}) == len(table.columns)
        for column in table.columns:
            assert column.definition
            assert column.source


async def test_help_on_the_page_tells_the_numbers_of_its_summary_and_of_its_tables() -> None:
    async with running_screen() as rig:
        await rig.press("7")
        await rig.until(lambda: isinstance(rig.app.screen, PageScreen))
        screen = rig.app.screen
        assert isinstance(screen, PageScreen)
        told = " ".join(plain_text(line).strip() for line in screen.explained(200))
    for metric in (details.CPU_GUEST, details.FREQUENCY, details.MINUTES_LEFT, details.NODE_MISS):
        assert metric.definition in told


def test_huge_pages_that_are_promised_are_used_as_on_the_dashboard() -> None:
    host = full_host(1)
    assert not isinstance(host.memory, Unavailable)
    pools = (HugePages(2 << 20, total=3000, free=2900, reserved=2844, surplus=2), HugePages(1 << 30, 4, 4, 0, 0))
    session = session_with(2, memory=replace(host.memory, huge_pages=pools))
    said = next(line for line in summary(session, 158, 14) if line.startswith(" huge"))
    assert "2 MB 2944/3000 used reserved 2844 surplus 2" in said
    assert "1 GB 0/4 used" in said
    assert "huge 2944/3000 used" in "\n".join(plain_text(line) for line in host_lines(session, 160, 4, UNICODE))


@pytest.mark.parametrize("cells", [80, 120])
def test_dirty_pages_and_the_commit_limit_have_room_on_every_screen(cells: int) -> None:
    said = "\n".join(summary(full_session(3), cells, 14))
    for title in ("dirty", "wb", "page tables", "committed", "limit"):
        assert f" {title} " in said


def test_a_disk_with_many_roles_names_them_where_there_is_room() -> None:
    host = full_host(1)
    assert not isinstance(host.disks, Unavailable)
    roles = ("data", "wal", "temp", "tablespace")
    disks = tuple(replace(disk, roles=roles) for disk in host.disks.disks)
    session = session_with(2, disks=replace(host.disks, disks=disks))
    assert " ".join(roles) in "\n".join(table_text(session, DISKS))


def test_a_pgbench_started_by_hand_is_called_pgbench() -> None:
    host = full_host(1)
    assert not isinstance(host.processes, Unavailable)
    row, *_ = host.processes.processes
    thread = ThreadCounters(4_711, 4_711, 1, 2, 3, 0)
    processes = replace(host.processes, processes=(replace(row, pid=4_711),), threads=(thread,))
    (line,) = [each for each in table_text(session_with(2, processes=processes), PROCESSES) if " 4711 " in each]
    assert "pgbench" in line


@pytest.fixture
def by_psutil() -> Session:
    """This machine as psutil sees it, a few looks."""
    seconds = iter(range(1000))
    host = PsutilHost(lambda: float(next(seconds)))
    session = Session(CHARTED)
    for second in range(3):
        session.apply(Step((frame(second, host=host.sample([os.getpid()], [os.getpid()])),)))
    return session


@pytest.mark.parametrize(("cells", "rows"), [(80, 9), (120, 14), (158, 14)])
def test_figures_that_psutil_does_not_tell_are_named_and_no_number_stands_for_them(
    by_psutil: Session, cells: int, rows: int
) -> None:
    lines = summary(by_psutil, cells, rows)
    assert "source: psutil" in lines[0]
    names = next(line for line in lines if line.startswith(" n/a"))
    assert "unavailable from psutil (help shows why): run queue, in I/O, dirty" in names
    above = "\n".join(lines[: lines.index(names)])
    assert "dirty" not in above
    assert "run queue" not in above
    assert "load" in above
    if rows == 14:
        assert " huge  psutil does not report huge pages" in "\n".join(lines)
    [row] = PROCESSES.rows(by_psutil)
    assert row.note == "pgtop-tune"
    assert row.value(details.PROCESS_RUN_DELAY.id) is None


def test_the_dashboard_leaves_out_what_psutil_does_not_tell_and_says_so(by_psutil: Session) -> None:
    text = "\n".join(plain_text(line) for line in host_lines(by_psutil, 200, 5, UNICODE))
    assert "by psutil: help shows what is missing" in text
    assert not [word for word in ("dirty", "huge ", "run queue", "queue  ", "in I/O", "committed") if word in text]
    assert all(word in text for word in ("postgres", "of", "cache", "load", "available", "psi psutil does not report"))
    assert "by psutil" in plain_text(host_lines(by_psutil, 80, 5, UNICODE)[1])


def test_the_help_gives_the_reason_below_the_definition(by_psutil: Session) -> None:
    metrics = {row.id: row for row in PAGE.numbers}
    why = why_untold(metrics["host.run_queue"], by_psutil.now)
    said = [plain_text(line).strip() for line in explained(metrics["host.run_queue"], 100, why)]
    assert "unavailable here: psutil does not report the number of runnable tasks" in said
    assert why_untold(metrics["host.load_1m"], by_psutil.now) == ""
    delay = next(column for column in PROCESSES.columns if column.title == "delay%")
    assert "schedstat" in why_untold(delay.metric, by_psutil.now)


def test_a_wide_screen_has_the_cores_by_name_and_the_histories_beside_the_figures() -> None:
    text = "\n".join(summary(full_session(40), 200, 24))
    for title in ("CPU %", "await ms of", "pressure %", "memory"):
        assert f"─ {title}" in text
    (cores,) = (line for line in text.splitlines() if line.startswith(" cores"))
    assert [word for word in cores[:99].split() if word in "0123"] == ["0", "1", "2", "3"]
