"""A session as tables, read by those who read tables."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from msgspec.structs import replace

from pgtop_tune.export.catalogue import TimeSpan, chosen, for_openmetrics, for_tables, moments, spaced
from pgtop_tune.export.exported import CANNOT_SAY, Exported, WatchedInterval
from pgtop_tune.export.openmetrics import Syntax, page, write_openmetrics
from pgtop_tune.export.tidy import COLUMNS, MomentsOfRecording, moment_text, tidy, write_parquet, write_tidy, write_wide
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.waits import WaitCount, WaitSample
from tests.export.pages import families, values
from tests.support import frames

WANTED = ("up", "server.tps", "host.disk.busy", "waits.event", "pooler.clients")


def seen(count: int, **other: object) -> list[Frame]:
    return [frames.frame(second, **other) for second in range(count)]  # type: ignore[arg-type]


class FramesInMemory:
    """Frames a second apart from 0 on."""

    def __init__(self, found: list[Frame]) -> None:
        self.found = found
        self.frame_count = len(found)

    def index_at(self, elapsed_s: float) -> int:
        return min(int(elapsed_s), self.frame_count - 1)

    def until(self, index: int) -> list[Frame]:
        return self.found[: index + 1]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def tidy_text(rows: tuple[Exported, ...], found: list[Frame], span: TimeSpan = TimeSpan()) -> str:  # noqa: B008
    file = io.StringIO()
    count = write_tidy(file, tidy(rows, moments(found, span)))
    assert count == len(rows_of(file.getvalue()))
    return file.getvalue()


def test_a_row_per_moment_metric_and_labels_with_the_value_of_the_metric() -> None:
    found = seen(20)
    table = rows_of(tidy_text(for_tables(), found))
    assert tuple(table[0]) == COLUMNS
    keys = [(row["time"], row["metric"], row["labels"]) for row in table]
    assert len(set(keys)) == len(keys)
    (tps,) = [row for row in table if row["metric"] == "server.tps" and float(row["elapsed_s"]) == 19]
    assert float(tps["value"]) == TPS(Interval(found))
    assert (tps["unit"], tps["reason"], tps["time"]) == ("1/s", "", moment_text(found[-1].taken_at_ms))
    disks = [json.loads(row["labels"]) for row in table if row["metric"] == "host.disk.busy" and row["value"]]
    assert all(set(each) == {"device"} for each in disks)
    assert {"vda"} <= {each["device"] for each in disks}


def test_what_cannot_be_said_is_an_empty_cell_and_a_reason() -> None:
    found = [*seen(3), frames.frame(3, postgres=Unavailable(Reason.NO_ANSWER, "=HYPERLINK(…)"), load=False)]
    table = {(row["elapsed_s"], row["metric"]): row for row in rows_of(tidy_text(chosen(WANTED), found))}
    assert (table["0.0", "server.tps"]["value"], table["0.0", "server.tps"]["reason"]) == ("", CANNOT_SAY)
    assert (table["3.0", "server.tps"]["value"], table["3.0", "server.tps"]["reason"]) == ("", "no answer")
    assert table["2.0", "server.tps"]["reason"] == ""
    assert table["3.0", "up"]["value"] == "0"
    assert table["3.0", "pooler.clients"]["reason"] == "no pooler"


@pytest.mark.parametrize(
    "name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", 'a"b', "a,b\nc", "\x1b[2J", "数\u202e"]
)
def test_a_name_is_exact_and_never_a_formula_or_an_escape_sequence(name: str) -> None:
    wait = WaitSample(1.0, 10, (WaitCount("Extension", name, "client backend", 5),))
    text = tidy_text(chosen(["waits.event"]), [frames.frame(1, postgres=frames.postgres_sample(1, waits=wait))])
    (row,) = rows_of(text)
    assert json.loads(row["labels"]) == {"wait_event_type": "Extension", "wait_event": name, "counted": "active"}
    assert not [
        cell for line in csv.reader(io.StringIO(text)) for cell in line if cell[:1] in ("=", "+", "-", "@", "\t", "\r")
    ]
    assert text.isascii()
    assert text.replace("\n", "").isprintable()


def test_wide_has_a_row_per_moment_and_says_what_tidy_says() -> None:
    found, file = seen(12), io.StringIO()
    assert write_wide(file, chosen(WANTED), [MomentsOfRecording(lambda: moments(found, TimeSpan(2, 11)))]) == 10
    wide = {
        (row["time"], name): value
        for row in rows_of(file.getvalue())
        for name, value in row.items()
        if name not in ("time", "elapsed_s", "host", "cluster") and value
    }
    narrow = rows_of(tidy_text(chosen(WANTED), found, TimeSpan(2, 11)))
    assert wide == {(row["time"], row["metric"] + row["labels"]): row["value"] for row in narrow if row["value"]}


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    found = seen(12)
    count = write_parquet(tmp_path / "a.parquet", tidy(for_tables(), moments(found, TimeSpan())))
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    assert table.num_rows == count
    assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]"
    expected = rows_of(tidy_text(for_tables(), found))
    assert [row["metric"] for row in table.to_pylist()] == [row["metric"] for row in expected]
    for row, same in zip(table.to_pylist(), expected, strict=True):
        assert row["value"] == (float(same["value"]) if same["value"] else None)
        assert [row[name] or "" for name in ("labels", "unit", "reason")] == [
            same["labels"],
            same["unit"],
            same["reason"],
        ]


def test_a_history_in_openmetrics_is_read_and_every_point_is_that_of_its_moment() -> None:
    found, file = seen(300), io.StringIO()
    rows = chosen(["up", "server.tps", "host.disk.*", "kernel.disk.*", "pg_stat_wal.*"])
    written, left_out = write_openmetrics(file, rows, moments(found, TimeSpan()))
    read = families(file.getvalue())
    assert left_out == 0
    assert sum(len(family.samples) for family in read.values()) == written
    moment = found[250]
    here = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read.values()
        for sample in family.samples
        if int(float(sample.timestamp) * 1000) == moment.taken_at_ms
    }
    assert here == values(page(rows, WatchedInterval(found[101:251]), Syntax.OPENMETRICS))


def test_a_clock_that_was_set_back_leaves_points_out_and_the_text_valid() -> None:
    found = seen(20)
    found[10:] = [replace(frame, taken_at_ms=frame.taken_at_ms - 5_000) for frame in found[10:]]
    file = io.StringIO()
    written, left_out = write_openmetrics(file, chosen(["up"]), moments(found, TimeSpan()))
    assert (written, left_out) == (15, 5)
    assert len(families(file.getvalue())["pgtop_up"].samples) == 15


def test_a_part_says_what_the_whole_says_of_its_moments() -> None:
    found = seen(40)
    whole = rows_of(tidy_text(for_tables(), found))
    part = rows_of(tidy_text(for_tables(), found, TimeSpan(30, 35)))
    assert part == [row for row in whole if 30 <= float(row["elapsed_s"]) <= 35]
    recorded, text = FramesInMemory(found), io.StringIO()
    write_tidy(text, tidy(for_tables(), spaced(recorded, recorded.until, TimeSpan(5, 39, every_s=10))))
    some = rows_of(text.getvalue())
    assert some == [row for row in whole if float(row["elapsed_s"]) in (5, 15, 25, 35)]


@pytest.mark.parametrize("write", [
    lambda found: write_tidy(_Nowhere(), tidy(chosen(["up", "server.tps"]), found())),
    pytest.param(
        lambda found: write_wide(_Nowhere(), chosen(["up", "server.tps"]), [MomentsOfRecording(found)]),
        marks=pytest.mark.long,
    ),
    lambda found: write_openmetrics(_Nowhere(), chosen(["up", "server.tps"]), found()),
], ids=["csv", "wide", "openmetrics"])  # fmt: skip
def test_memory_does_not_grow_with_the_length(
    write: Callable[[Callable[[], Iterator[WatchedInterval]]], object],
) -> None:
    first = seen(40, load=False)

    def found(count: int) -> Iterator[WatchedInterval]:
        repeated = (
            replace(first[number % 40], elapsed_s=float(number), taken_at_ms=first[0].taken_at_ms + number * 1000)
            for number in range(count)
        )
        return moments(repeated, TimeSpan())

    def peak(count: int) -> int:
        tracemalloc.start()
        write(lambda: found(count))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(200)
    assert peak(2_200) < peak(200) + 500_000


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


def test_everything_for_openmetrics_can_be_a_table_too() -> None:
    table = rows_of(tidy_text(for_openmetrics(), seen(3)))
    assert "pg_stat_wal.wal_bytes" in {row["metric"] for row in table}
