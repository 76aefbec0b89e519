"""Pages 5 and 6 as they look: numbers in their columns, reasons in the place of tables, foreign text never obeyed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.backend_action import StatementToPlan
from pgtop_tune.model.io import ArchiverStatus, DatabaseSample, IoSample, SlruSample, WalFiles
from pgtop_tune.model.postgres import Activity, ParameterSample, StatementTotals
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages import io, listing, statements
from pgtop_tune.tui.pages.listing import first_view, listing_lines, ordered, without_unused
from pgtop_tune.tui.pages.page import Page, PageTable, row_lines, row_text
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, Glyphs, plain_text, width
from tests.support.frames import EPOCH_MS, MIB, PARAMETERS, backend, parameter, postgres_sample
from tests.support.pictures import assert_picture
from tests.support.statement_frames import HOSTILE, database, io_row, sample, session_with, slru, statement, texts

GOLDENS = Path(__file__).parents[1] / "goldens"
SIZES = ((80, 24), (160, 48))
WORDS = {
    1: "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
    2: HOSTILE,
    3: "SELECT count(*)\n  FROM orders\n WHERE placed > $1",
}


def section(second: int) -> dict[str, object]:
    """Two seconds between looks at statements and I/O; everything grows by the same each second."""
    at = second // 2 * 2
    before = float(at - 2) if at >= 2 else None
    entries = [
        statement(1, calls=1_200 * at, exec_us=640_000 * at, rows=1_200 * at, shared_blks_hit=9_700 * at,
                  shared_blks_read=300 * at, shared_blks_dirtied=800 * at, shared_blks_written=40 * at,
                  wal_bytes=900_000 * at, wal_fpi=20 * at, wal_records=3_600 * at, min_exec_us=200, max_exec_us=91_000,
                  blk_read_us=90_000 * at, plans=0),
        statement(2, calls=3 * at, exec_us=90_000 * at, rows=90 * at, temp_blks_written=500 * at, jit_us=7_000 * at,
                  datname='odd "[db]'),
        statement(3, calls=70, exec_us=91_000_000, rows=70),
        statement(4, calls=2 * at, exec_us=1_000 * at, usename="app", toplevel=False),
    ]  # fmt: skip
    io_rows = (
        io_row("checkpointer", reads=None, read_bytes=None, read_us=None, writes=600 * at, write_bytes=600 * 8192 * at,
               write_us=12_000 * at, extends=None, extend_bytes=None, fsyncs=2 * at, fsync_us=8_000 * at),
        io_row("client backend", reads=300 * at, read_bytes=300 * 8192 * at, read_us=90_000 * at, writes=40 * at,
               write_bytes=40 * 8192 * at, hits=9_700 * at, extends=3 * at, extend_bytes=3 * 8192 * at),
        io_row("client backend", "wal", writes=1_100 * at, write_bytes=1_100 * 8192 * at, fsyncs=900 * at),
        io_row("autovacuum worker", context="vacuum", reads=7),
    )  # fmt: skip
    sample_of_frame = postgres_sample(second)
    return {
        "statements": StatementTotals(float(second), 1_300 * second, 731.0 * second, 4_321, 2, EPOCH_MS - 3_600_000),
        "statement_counters": sample(float(at), before, entries, changed=900, left_out=800, own=9),
        "statement_texts": texts(0.0, WORDS),
        "databases": DatabaseSample(
            float(at),
            (
                database(0, datname=None),
                database(5, datname="bench", numbackends=17, xact_commit=1_200 * at, xact_rollback=3 * at,
                         blks_hit=9_700 * at, blks_read=300 * at, tup_updated=3_600 * at, active_us=5_200_000 * at,
                         checksum_failures=1, deadlocks=2),
                database(9, datname='odd "[db]\x1b[2J', checksum_failures=None),
            ),
        ),
        "io": IoSample(float(at), 1, io_rows),
        "slru": SlruSample(float(at), (slru("transaction", blks_hit=900 * at, blks_read=100 * at), slru("notify"))),
        "archiver": ArchiverStatus(
            float(at), 41, f"00000001{2550 // 256:08X}{2550 % 256:08X}", EPOCH_MS - 5_000, 1, "", None, 1
        ),
        "wal_files": WalFiles(float(second), 40 + second, (40 + second) * 16 * MIB, 8),
        "wal": replace(
            sample_of_frame.wal, wal_writes=1_100 * second, wal_write_us=11_000 * second, wal_syncs=900 * second,
            wal_sync_us=1_800_000 * second,
        ),  # type: ignore[type-var]
        "parameters": ParameterSample(
            0.0,
            (*PARAMETERS, parameter("pg_stat_statements.max", "5000", "5000"),
             parameter("pg_stat_statements.track_planning", "off", "off", vartype="bool"),
             parameter("archive_mode", "on", "on")),
        ),
    }  # fmt: skip


def busy() -> Session:
    return session_with([section(second) for second in range(14)])


def shown(
    page: Page, table: PageTable, session: Session, width: int, height: int, glyphs: Glyphs = UNICODE
) -> list[str]:
    """Summary and table as on the screen."""
    rows = table.rows(session)
    view = first_view(table)
    found = rows if isinstance(rows, Unavailable) else ordered(table, view, rows)
    hidden = 0
    if not isinstance(rows, Unavailable):
        view, hidden = without_unused(table, view, found), len(rows) - len(found)
    room = page.summary_rows(width, height)
    lines = page.summary(session, width, room, glyphs)
    assert len(lines) <= room
    lines = [*lines, *listing_lines(page.tables, table, view, found, width, height - room - 4, glyphs, hidden=hidden)]
    return [plain_text(line) for line in lines]


def cells(rows: Sequence[str], first: str) -> str:
    return next(row for row in rows if first in row)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("name", ["statements", "io", "wal", "slru", "databases", "archiver"])
def test_pictures(name: str, width: int, height: int) -> None:
    page = statements.PAGE if name == "statements" else io.PAGE
    table = next(table for table in page.tables if table.id == name)
    assert_picture(GOLDENS / f"page-{name}-{width}x{height}.txt", shown(page, table, busy(), width, height))


def test_statements_stand_by_time_with_their_numbers() -> None:
    rows = shown(statements.PAGE, statements.TABLE, busy(), 200, 40)
    first = cells(rows, "UPDATE pgbench_accounts").split()
    assert first[:10] == ["640", "88", "1200", "0.53", "1", "97", "2.34", "MB", "6.25", "MB"]
    bodies = [row for row in rows if "SELECT" in row or "UPDATE" in row or "query id" in row]
    words = ["UPDATE", "boo", "text not known yet (query id 4)"]
    assert [word for body in bodies for word in words if word in body] == words


def test_idle_statements_and_columns_that_none_of_the_others_used_are_hidden_and_a_line_has_the_sum() -> None:
    rows = shown(statements.PAGE, statements.TABLE, busy(), 250, 40)
    text = "\n".join(rows)
    assert "FROM orders" not in text
    assert "idle hidden" in text
    assert "tempB/s" in text
    assert "plan ms/s" not in text
    # Nested statements are part of those that call them.
    assert cells(rows, "sum of the top-level").split()[:4] == ["730", "100", "1203", "0.61"]
    idle = [{**section(12), "statement_counters": sample(float(at), at - 2.0 if at else None,
            [statement(3, calls=70, exec_us=91_000_000, temp_blks_read=9)])} for at in (0, 2)]  # fmt: skip
    assert "1 idle: i lists them" in "\n".join(shown(statements.PAGE, statements.TABLE, session_with(idle), 80, 24))


@pytest.mark.parametrize(("cells", "query"), [(60, 36), (80, 48), (120, 50), (155, 50)])
def test_the_query_keeps_its_room(cells: int, query: int) -> None:
    table = statements.TABLE
    view = without_unused(table, first_view(table), table.rows(busy()))  # type: ignore[arg-type]
    columns, _, _ = listing.placed(table, view, cells)
    assert cells - 1 - sum(column.width + 1 for column in columns[:-1]) >= query


def test_the_summary_tells_entries_evictions_and_what_is_not_shown() -> None:
    text = "\n".join(shown(statements.PAGE, statements.TABLE, busy(), 200, 40)[:2])
    assert "entries 4321/5000" in text
    assert "evictions 2" in text
    assert "800 executed but not listed" in text
    assert "9 of pgtop-tune hidden" in text
    assert "track_planning is off" in text


def test_plans_that_the_extension_does_not_count_say_from_which_version_on() -> None:
    session = busy()
    rows = statements.TABLE.rows(session)
    assert not isinstance(rows, Unavailable)
    row = rows[0]
    assert "0 executions with a generic plan" in "\n".join(
        plain_text(line) for line in row_lines(statements.TABLE, session, row, 76, UNICODE)
    )
    older = replace(row.grown, row=replace(row.counters, generic_plan_calls=None, custom_plan_calls=None), by={})
    text = "\n".join(
        plain_text(line) for line in row_lines(statements.TABLE, session, replace(row, grown=older), 76, UNICODE)
    )
    assert "plans             - (counted from pg_stat_statements 1.13 on, PostgreSQL 19)" in text
    for column in statements.TABLE.columns:
        if column.id in ("generic", "custom"):
            assert column.text(replace(row, grown=older)) == "-"


def test_details_are_called_by_the_query_and_have_it_above_the_counters() -> None:
    session = busy()
    rows = statements.TABLE.rows(session)
    assert not isinstance(rows, Unavailable)
    assert statements.TABLE.called is not None
    for row in rows:
        assert row.text is None or "SELECT" in statements.TABLE.called(row) or "UPDATE" in statements.TABLE.called(row)
        lines = [plain_text(line) for line in row_lines(statements.TABLE, session, row, 76, UNICODE)]
        query = next(index for index, line in enumerate(lines) if line.startswith("query") and "query id" not in line)
        assert query < next(index for index, line in enumerate(lines) if line.startswith("counted"))


def test_details_have_the_whole_text_and_every_counter() -> None:
    session = busy()
    rows = {rate.counters.queryid: rate for rate in statements.TABLE.rows(session)}  # type: ignore[union-attr]
    lines = [plain_text(line) for line in row_lines(statements.TABLE, session, rows[3], 80, UNICODE)]
    at = next(index for index, line in enumerate(lines) if line.startswith("query") and "query id" not in line)
    assert [line.rstrip() for line in lines[at + 1 : at + 4]] == [
        "SELECT count(*)",
        "  FROM orders",
        " WHERE placed > $1",
    ]
    assert any(line.split()[:3] == ["wal_bytes", "0", "0"] for line in lines)
    assert row_text(statements.TABLE, rows[3]) == WORDS[3]
    assert row_text(statements.TABLE, rows[4]) == "4"


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(40, 10), (80, 24), (131, 33), (250, 60)])
def test_every_line_fits_and_no_foreign_text_is_obeyed(size: tuple[int, int], glyphs: Glyphs) -> None:
    session = busy()
    for page in (statements.PAGE, io.PAGE):
        for table in page.tables:
            for column in table.columns:
                for row in table.rows(session):  # type: ignore[union-attr]
                    assert not {"\x1b", "\u202e", "\n"} & set(column.text(row)), (table.id, column.id)
            room = page.summary_rows(*size)
            assert all(width(line) <= size[0] for line in page.summary(session, size[0], room, glyphs))
            assert all(len(row) <= size[0] * 4 for row in shown(page, table, session, *size, glyphs))


@pytest.mark.parametrize(
    ("table", "field"),
    [(statements.TABLE, "statement_counters"), (io.IO, "io"), (io.SLRU, "slru"), (io.DATABASES, "databases"),
     (io.ARCHIVER, "archiver")],
)  # fmt: skip
def test_a_missing_section_says_why_in_the_place_of_the_table(table: PageTable, field: str) -> None:
    why = Unavailable(Reason.NO_PERMISSION, "GRANT something TO bench opens it")
    session = session_with([{**section(second), field: why} for second in range(3)])
    page = statements.PAGE if table is statements.TABLE else io.PAGE
    assert "GRANT something TO bench opens it" in "\n".join(shown(page, table, session, 120, 40))


def test_before_the_first_frame_and_after_one_nothing_is_made_up() -> None:
    for session in (Session(), session_with([section(0)])):
        for page in (statements.PAGE, io.PAGE):
            for table in page.tables:
                rows = shown(page, table, session, 120, 40)
                assert not any("nan" in row or "None" in row for row in rows)
    row = cells(shown(statements.PAGE, statements.TABLE, session_with([section(0)]), 160, 40), "UPDATE").split()
    assert row[:4] == ["-", "-", "-", "-"]


def test_columns_explain_themselves_and_sort_by_numbers() -> None:
    session = busy()
    for page in (statements.PAGE, io.PAGE):
        for table in page.tables:
            assert len({column.id for column in table.columns}) == len(table.columns)
            assert not table.sort or any(column.id == table.sort for column in table.columns)
            for column in table.columns:
                assert column.definition.endswith(".")
                assert column.source
                for row in table.rows(session):  # type: ignore[union-attr]
                    value = None if column.value is None else column.value(row)
                    assert not isinstance(value, float) or math.isfinite(value)


def test_archiving_that_is_off_is_said() -> None:
    off = ParameterSample(0.0, (*PARAMETERS, parameter("archive_mode", "off", "off")))
    never = ArchiverStatus(0.0, 0, "", None, 0, "", None, None)
    session = session_with([{**section(0), "parameters": off, "archiver": never}])
    assert "archive_mode is off" in "\n".join(shown(io.PAGE, io.ARCHIVER, session, 120, 40))
    assert "archiving off" in "\n".join(shown(io.PAGE, io.IO, session, 200, 40))


def test_statements_hidden_from_this_role_come_with_the_grant() -> None:
    hidden = {**section(0), "statement_counters": sample(0.0, None, [], hidden=12)}
    text = "\n".join(shown(statements.PAGE, statements.TABLE, session_with([hidden]), 160, 40))
    assert "12 statements of other users are hidden: GRANT pg_read_all_stats TO bench" in text


def test_where_all_statements_are_hidden_the_table_does_not_say_that_none_has_ended() -> None:
    hidden = {**section(0), "statement_counters": sample(0.0, None, [], hidden=1)}
    text = "\n".join(shown(statements.PAGE, statements.TABLE, session_with([hidden]), 80, 24))
    assert "1 statement of another user is hidden: GRANT pg_read_all_stats TO bench" in " ".join(text.split())
    assert "no statement has ended" not in text


@pytest.mark.parametrize("cells", range(60, 161, 5))
def test_who_reads_and_writes_is_never_cut_in_a_number(cells: int) -> None:
    names = ("client backend", "autovacuum worker", "background writer", "checkpointer")
    grown = [
        {"io": IoSample(float(second), 1, tuple(
            io_row(name, writes=second, write_bytes=(700_000 + place) * second, reads=second, read_bytes=9_000 * second)
            for place, name in enumerate(names)
        ))}
        for second in range(3)
    ]  # fmt: skip
    line = plain_text(io.PAGE.summary(session_with(grown), cells, 2, UNICODE)[1])
    assert "written by" in line
    assert line.rstrip().endswith("/s"), line


def test_a_statement_is_planned_as_the_statistics_have_it_and_before_16_with_the_text_of_a_session() -> None:
    session = busy()
    (first, *_) = [row for row in statements.TABLE.rows(session) if row.counters.queryid == 1]  # type: ignore[union-attr]
    statement_of = statements.TABLE.statement_of
    assert statement_of is not None
    assert statement_of(session, first) == StatementToPlan(WORDS[1], "bench", first.counters.usename or "")
    old = replace(postgres_sample(13).server, version_num=150_004)
    texts_seen = ("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2", "UPDATE t SET a = 1")
    found = []
    for text in texts_seen:
        activity = Activity(0.0, EPOCH_MS, (backend(1, EPOCH_MS, query=text, query_id=1),))
        found.append(statement_of(session_with([{**section(13), "server": old, "activity": activity}]), first))
    assert "needs PostgreSQL 16" in str(found[0])
    assert getattr(found[1], "query", "") == texts_seen[1]
    # Later servers plan the normalized text, or that of a session where it is no SQL.
    running = Activity(
        0.0, EPOCH_MS, tuple(backend(pid, EPOCH_MS, query=text, query_id=1) for pid, text in enumerate(texts_seen))
    )
    planned = statement_of(session_with([{**section(13), "activity": running}]), first)
    assert planned == StatementToPlan(WORDS[1], "bench", first.counters.usename or "", texts_seen[1])


def test_definitions_go_on_below_where_there_is_room_and_are_cut_with_a_sign_where_not() -> None:
    table, session = io.IO, busy()
    row = next(iter(table.rows(session)))  # type: ignore[arg-type]
    whole = row_lines(table, session, row, 66, UNICODE)
    cut = row_lines(table, session, row, 66, UNICODE, len(table.columns))
    said = " ".join(plain_text(line)[34:].strip() for line in whole)
    assert all(column.definition in said for column in table.columns if len(column.text(row)) < 16)
    assert len(cut) == len(table.columns)
    assert sum(plain_text(line).rstrip().endswith("…") for line in cut) > 3


def test_what_is_not_counted_stands_where_the_counts_do() -> None:
    row = next(iter(statements.TABLE.rows(busy())))  # type: ignore[arg-type]
    row = replace(row, grown=replace(row.grown, row=replace(row.counters, generic_plan_calls=None)))
    lines = [plain_text(line).rstrip() for line in row_lines(statements.TABLE, busy(), row, 80, UNICODE)]
    assert "generic_plan_calls".ljust(statements._LABEL + 3) + "-".rjust(8) in lines


def test_the_history_beside_is_of_the_number_sorted_by_also_where_it_is_the_first_column() -> None:
    row = next(iter(statements.TABLE.rows(busy())))  # type: ignore[arg-type]
    view = first_view(statements.TABLE)
    for sort, title in ((view.sort, "ms/s"), ("calls", "calls/s")):
        column = listing._foremost(statements.TABLE, replace(view, sort=sort), row, None)
        assert column is not None
        assert column.title == title
