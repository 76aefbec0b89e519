"""A counter stands in an export at the moment it was read, and once."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import psutil
import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.export.catalogue import TimeSpan, chosen, moments
from pgtop_tune.export.openmetrics import write_openmetrics
from pgtop_tune.export.tidy import MomentsOfRecording, write_tidy, write_wide
from pgtop_tune.export.tidy import tidy as tidy_rows
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.io import DatabaseRow, DatabaseSample
from tests.cli.runs import run
from tests.export.pages import families
from tests.support import frames
from tests.support.servers import conninfo

PER_S = 4_000
COUNTER = "pg_stat_database.xact_commit"


def read_every_two_seconds(count: int) -> list[Frame]:
    """The transactions of one database, 4000 a second, read 0.3 s before every other frame."""
    kind = DatabaseRow.__struct_fields__
    found = []
    for second in range(2, count + 2):
        at_s = second // 2 * 2 - 0.3
        values = dict.fromkeys(kind, 0) | {"datid": 1, "datname": "bench", "xact_commit": round(PER_S * at_s)}
        sample = DatabaseSample(at_s, (DatabaseRow(**values),))  # type: ignore[arg-type]
        found.append(frames.frame(second, postgres=frames.postgres_sample(second, databases=sample)))
    return found


def test_rates_of_a_section_read_every_other_frame_are_those_of_the_server() -> None:
    seen = read_every_two_seconds(21)
    rows = chosen([COUNTER])
    tidy, wide, openmetrics = io.StringIO(), io.StringIO(), io.StringIO()
    write_tidy(tidy, tidy_rows(rows, moments(seen, TimeSpan())))
    points = [(float(row["elapsed_s"]), float(row["value"])) for row in csv.DictReader(io.StringIO(tidy.getvalue()))]
    assert len(points) == 11
    assert {round((after - value) / (later - at), 6) for (at, value), (later, after) in pairwise(points)} == {PER_S}
    written, left_out = write_openmetrics(openmetrics, rows, moments(seen, TimeSpan()))
    (family,) = families(openmetrics.getvalue()).values()
    stamped = [(float(sample.timestamp), sample.value) for sample in family.samples]
    assert (written, left_out) == (11, 0)
    assert {round((after - value) / (later - at)) for (at, value), (later, after) in pairwise(stamped)} == {PER_S}
    write_wide(wide, rows, [MomentsOfRecording(lambda: moments(seen, TimeSpan()))])
    cells = [row[-1] for row in csv.reader(io.StringIO(wide.getvalue()))][1:]
    assert [bool(cell) for cell in cells] == [second % 2 == 0 for second in range(2, 23)]


STATEMENTS = {
    "pg_stat_database": "SELECT xact_commit, blks_hit, tup_returned, tup_updated, active_time * 1000 AS active_time"
    " FROM pg_stat_database WHERE datname = current_database()",
    "pg_stat_wal": "SELECT wal_records, wal_fpi, wal_bytes, pg_current_wal_insert_lsn() - '0/0' AS insert_lsn"
    " FROM pg_stat_wal",
    "pg_stat_bgwriter": "SELECT buffers_alloc FROM pg_stat_bgwriter",
    "pg_stat_io": "SELECT hits, writes, extends FROM pg_stat_io"
    " WHERE (backend_type, object, context) = ('client backend', 'relation', 'normal')",
    "pg_stat_slru": "SELECT blks_hit, blks_zeroed FROM pg_stat_slru WHERE name = 'transaction'",
}


class Independent(threading.Thread):
    """Reads counters ten times a second on connections of its own; they only ever rise.

    Attributes:
        found: By name, of each reading when it began, when it had ended and what it was: on a full machine a statement
            may take seconds.
        begun: All counters have been read once.
    """

    def __init__(self, server: str) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.begun, self.over = threading.Event(), threading.Event()
        self.found: dict[str, list[tuple[float, float, float]]] = {}

    def run(self) -> None:
        with psycopg.connect(self.server, autocommit=True) as connection:
            while not self.over.wait(0.1):
                for view, statement in STATEMENTS.items():
                    began = time.time()
                    cursor = connection.execute(statement)
                    names = [column.name for column in cursor.description or ()]
                    row = dict(zip(names, cursor.fetchone() or (), strict=False))
                    self._note(began, {f"{view}.{name}": value for name, value in row.items()})
                began = time.time()
                kernel = {
                    "kernel.context_switches": psutil.cpu_stats().ctx_switches,
                    "kernel.cpu.time": psutil.cpu_times().user,
                    "kernel.network.sent_bytes": psutil.net_io_counters(True)["lo"].bytes_sent,
                }
                self._note(began, kernel)
                self.begun.set()

    def _note(self, began: float, values: Mapping[str, float]) -> None:
        ended = time.time()
        for name, value in values.items():
            self.found.setdefault(name, []).append((began, ended, float(value)))

    def saw_within(self, name: str, at: float, value: float, earlier_s: float, later_s: float) -> bool:
        """Whether it saw this value, or one that it passed, at most so long before and after the moment."""
        readings, deadline_s = self.found[name], time.monotonic() + 60.0
        while readings[-1][0] <= at + later_s:
            assert time.monotonic() < deadline_s, "no later reading came"
            time.sleep(0.05)
        first = max(bisect_right(readings, at - earlier_s, key=lambda reading: reading[1]) - 1, 0)
        last = min(bisect_right(readings, at + later_s, key=lambda reading: reading[0]), len(readings) - 1)
        return readings[first][2] <= value <= readings[last][2]


@pytest.fixture(scope="module")
def busy(server: Throwaway) -> Iterator[Independent]:
    """A database at work, and who reads beside us."""
    watched = conninfo(server)
    with psycopg.connect(watched, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS counted")
        connection.execute("CREATE TABLE counted AS SELECT 0 AS n")
    work = threading.Event()

    def working() -> None:
        with psycopg.connect(watched, autocommit=True) as connection:
            # All it can do would take a core from other tests.
            while not work.wait(0.001):
                connection.execute("UPDATE counted SET n = n + 1")

    worker, reader = threading.Thread(target=working, daemon=True), Independent(watched)
    worker.start()
    reader.start()
    # On a full machine it connects after us, and has nothing to say of our first frame.
    assert reader.begun.wait(60.0)
    yield reader
    work.set()
    reader.over.set()
    worker.join(30)
    reader.join(30)
    with psycopg.connect(watched, autocommit=True) as connection:
        connection.execute("DROP TABLE counted")


LABELS = {
    "pg_stat_database": {"datname": "postgres"},
    "pg_stat_io": {"backend_type": "client backend", "object": "relation", "context": "normal"},
    "pg_stat_slru": {"name": "transaction"},
    "kernel.cpu": {"mode": "user"},
    "kernel.network": {"interface": "lo"},
}


def test_every_exported_counter_is_what_another_reader_saw_at_that_moment(
    busy: Independent, server: Throwaway, tmp_path: Path
) -> None:
    """Statistics of a session are a second old at most, so ours lies between the other's a little before and after."""
    recorded, out = tmp_path / "run.jsonl", tmp_path / "run.csv"
    done = run("record", conninfo(server), "-o", str(recorded), "--seconds", "9", "-q", home=tmp_path)
    assert done.status == 0, done.err
    assert run("export", str(recorded), "--metrics", ",".join(busy.found), "-o", str(out), home=tmp_path).status == 0
    points: dict[str, list[tuple[float, float]]] = {}
    for row in csv.DictReader(out.open(encoding="utf-8")):
        family = row["metric"].rpartition(".")[0]
        wanted = LABELS.get(family)
        if row["value"] and (wanted is None or json.loads(row["labels"] or "{}") == wanted):
            at = datetime.fromisoformat(row["time"]).timestamp()
            points.setdefault(row["metric"], []).append((at, float(row["value"])))
    assert set(busy.found) == set(points)
    for name, found in points.items():
        assert len(found) >= 2, name
        assert len({at for at, _ in found}) == len(found), name
        within = [busy.saw_within(name, at, value, 0.4, 2.0) for at, value in found]
        assert sum(within) > len(within) / 2, (name, found)
        # On a full machine an answer can lie unread for a while.
        strays = [each for each in found if not busy.saw_within(name, *each, 5.0, 2.0)]
        assert not strays, (name, strays, found, busy.found[name])
