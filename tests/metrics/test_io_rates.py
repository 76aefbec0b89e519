"""Databases, pg_stat_io, SLRU caches, archive, WAL disk: arithmetic done by hand, resets, the edges of file names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.io import (
    ARCHIVE_BACKLOG,
    BACKEND_FSYNCS,
    WAL_DISK_UNTIL_FULL,
    database_rates,
    io_rates,
    readers_and_writers,
    segment_number,
    slru_rates,
)
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import FileSystem, FileSystemSample
from pgtop_tune.model.io import ArchiverStatus, DatabaseSample, IoSample, SlruSample, WalFiles
from pgtop_tune.model.postgres import Activity, ParameterSample
from tests.support.frames import GIB, MIB, facts, frame, host_sample, parameter, postgres_sample
from tests.support.statement_frames import database, io_row, session_with, slru


def interval_of(*sections: dict[str, object]) -> Interval:
    interval = session_with(sections).interval
    assert interval is not None
    return interval


def test_databases_by_name_with_what_they_did() -> None:
    before, after = database(5, xact_commit=100, blks_hit=10), database(5, xact_commit=140, blks_hit=40, blks_read=10)
    (rate,) = database_rates(
        interval_of({"databases": DatabaseSample(0.0, (before,))}, {"databases": DatabaseSample(2.0, (after,))})
    )
    assert rate.per_s("xact_commit", "xact_rollback") == 20.0
    assert rate.share("blks_hit", "blks_read") == 75.0


def test_our_own_sessions_and_transactions_are_not_those_of_our_database() -> None:
    def look(second: int) -> dict[str, object]:
        activity = Activity(float(second), 0, (), own_backends=2)
        rows = tuple(
            database(oid, datname=name, numbackends=9, xact_commit=104 * second)
            for oid, name in ((5, facts().database), (6, "another"))
        )
        return {"activity": activity, "databases": DatabaseSample(float(second), rows)}

    ours, another = database_rates(interval_of(*(look(second) for second in range(4))))
    assert (ours.row.numbackends, another.row.numbackends) == (7, 9)
    assert (ours.per_s("xact_commit"), another.per_s("xact_commit")) == (100.0, 104.0)
    assert ours.row.xact_commit == 312


def test_a_database_made_in_between_and_one_that_was_reset_give_no_number() -> None:
    older = DatabaseSample(0.0, (database(5, xact_commit=100, stats_reset_ms=1),))
    newer = DatabaseSample(2.0, (database(5, xact_commit=900, stats_reset_ms=2), database(6, xact_commit=900)))
    found = database_rates(interval_of({"databases": older}, {"databases": newer}))
    assert [rate.per_s("xact_commit") for rate in found] == [None, None]


def test_io_rows_that_appear_have_counted_nothing_before() -> None:
    older = IoSample(0.0, 1, (io_row("checkpointer", writes=10, write_bytes=10 * 8192),))
    newer = IoSample(
        2.0,
        1,
        (
            io_row("checkpointer", writes=30, write_bytes=30 * 8192),
            io_row("client backend", reads=8, read_bytes=8 * 8192, extends=2, extend_bytes=2 * 8192, fsyncs=None),
            io_row("walwriter", "wal", writes=100, write_bytes=100 * 8192),
        ),
    )
    interval = interval_of({"io": older}, {"io": newer})
    rates = {rate.row.backend_type: rate for rate in io_rates(interval)}
    assert rates["checkpointer"].per_s("writes") == 10.0
    assert rates["client backend"].per_s("read_bytes") == 4 * 8192
    assert rates["client backend"].per_s("fsyncs") is None
    shares = readers_and_writers(interval)
    assert shares is not None
    readers, writers = shares
    assert [(each.backend_type, each.bytes_per_s) for each in readers] == [("client backend", 4.0 * 8192)]
    assert [(each.backend_type, each.bytes_per_s) for each in writers] == [
        ("checkpointer", 10.0 * 8192),
        ("client backend", 8192.0),
    ]


def test_a_reset_of_pg_stat_io_gives_no_number() -> None:
    rows = (io_row("checkpointer", writes=10),), (io_row("checkpointer", writes=90),)
    interval = interval_of({"io": IoSample(0.0, 1, rows[0])}, {"io": IoSample(2.0, 2, rows[1])})
    assert [rate.by for rate in io_rates(interval)] == [None]
    assert readers_and_writers(interval) is None


def test_one_cache_reset_leaves_the_others() -> None:
    older = SlruSample(0.0, (slru("transaction", blks_hit=5), slru("notify", blks_hit=50, stats_reset_ms=1)))
    newer = SlruSample(2.0, (slru("transaction", blks_hit=9), slru("notify", blks_hit=60, stats_reset_ms=2)))
    rates = {
        rate.row.name: rate.per_s("blks_hit") for rate in slru_rates(interval_of({"slru": older}, {"slru": newer}))
    }
    assert rates == {"transaction": 2.0, "notify": None}


def test_syncs_by_backends() -> None:
    checkpoints = postgres_sample(0).checkpoints
    interval = interval_of(
        {"checkpoints": replace(checkpoints, at_s=0.0, backend_fsyncs=3)},
        {"checkpoints": replace(checkpoints, at_s=2.0, backend_fsyncs=7)},
    )
    assert BACKEND_FSYNCS(interval) == 2.0


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("000000010000000000000001", 1),
        ("0000000200000001000000FF", 511),
        ("00000001000000000000000A.00000028.backup", 10),
        ("00000002.history", None),
        ("", None),
        ("0000000100000000000000", None),
    ],
)
def test_segments_have_numbers(name: str, number: int | None) -> None:
    assert segment_number(name, 16 * MIB) == number


@given(number=st.integers(0, 2**34 - 1), power=st.integers(20, 30), timeline=st.integers(1, 2**32 - 1))
def test_names_of_segments_are_read_as_the_server_writes_them(number: int, power: int, timeline: int) -> None:
    per_log = (1 << 32) >> power
    name = f"{timeline:08X}{number // per_log:08X}{number % per_log:08X}"
    assert segment_number(name, 1 << power) == number


def test_the_backlog_is_what_was_completed_after_the_last_archived() -> None:
    # The made-up server stands at 40 GiB: in segment 2560 of 16 MiB.
    last = f"00000001{2550 // 256:08X}{2550 % 256:08X}"
    archiver = ArchiverStatus(0.0, 7, last, None, 0, "", None, None)
    assert ARCHIVE_BACKLOG(interval_of({"archiver": archiver})) == 9.0
    assert ARCHIVE_BACKLOG(interval_of({"archiver": replace(archiver, last_archived_wal="")})) is None


def test_where_nothing_was_ever_archived_the_backlog_begins_with_what_failed() -> None:
    failed = f"00000001{2550 // 256:08X}{2550 % 256:08X}"
    archiver = ArchiverStatus(0.0, 0, "", None, 3, failed, 1, None)
    assert ARCHIVE_BACKLOG(interval_of({"archiver": archiver})) == 10.0
    assert ARCHIVE_BACKLOG(interval_of({"archiver": replace(archiver, last_failed_wal="00000002.history")})) is None


def growing_wal(max_wal_size_mb: int, wal_keep_size_mb: int = 0) -> list[Frame]:
    """The WAL directory has grown from 1 GiB by 10 MiB a second, and its disk has 5 GiB left."""
    systems = (
        FileSystem("/", "ext4", "vda", ("data",), 9 * GIB, GIB, GIB, 0, 0),
        FileSystem("/wal", "ext4", "vdb", ("wal",), 9 * GIB, 6 * GIB, 5 * GIB, 0, 0),
    )
    limits = tuple(
        parameter(name, str(size), f"{size}MB", "MB")
        for name, size in (("max_wal_size", max_wal_size_mb), ("wal_keep_size", wal_keep_size_mb))
    )
    return [
        frame(
            second,
            host=host_sample(second, file_systems=FileSystemSample(float(second), systems)),
            postgres=postgres_sample(
                second,
                wal_files=WalFiles(float(second), 10, size, 0),
                parameters=ParameterSample(float(second), limits),
            ),
        )
        for second, size in ((0, GIB), (60, GIB + 600 * MIB))
    ]


def test_the_wal_disk_fills_as_the_directory_grows_beyond_what_is_recycled() -> None:
    frames = growing_wal(1024, 512)
    assert WAL_DISK_UNTIL_FULL(Interval(frames)) == pytest.approx(512.0)
    assert WAL_DISK_UNTIL_FULL(Interval(frames[:1])) is None


@pytest.mark.parametrize("limits_mb", [(4096, 0), (1024, 1024)])
def test_a_directory_that_will_stop_by_itself_fills_no_disk(limits_mb: tuple[int, int]) -> None:
    assert WAL_DISK_UNTIL_FULL(Interval(growing_wal(*limits_mb))) is None


def test_a_disk_too_small_for_max_wal_size_fills_all_the_same() -> None:
    assert WAL_DISK_UNTIL_FULL(Interval(growing_wal(16_384))) == pytest.approx(512.0)
