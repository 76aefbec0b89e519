"""`show`: the rows of the pages for scripts, live and from recordings, and why there are none."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.json import encode
from msgspec.structs import replace

from pgtop_tune.base.errors import NotAvailable, UsageProblem
from pgtop_tune.cli.commands.show import ShowFormat, ShowRequest, What
from pgtop_tune.cli.commands.show.finding import evidence_value
from pgtop_tune.cli.commands.show.formats import program_value
from pgtop_tune.cli.commands.show.moments import RowChoice, show_rows
from pgtop_tune.cli.commands.show.session import ShownSession
from pgtop_tune.cli.commands.show.tables import TABLES, columns_for_programs, shown_table
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.model.absence import NOT_RECORDED
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.actions import all_pages
from pgtop_tune.tui.pages.listing import first_view, ordered
from tests.cli.runs import PROGRAM, ROOT, Ran, environment, run
from tests.support import frames
from tests.support.crowd import Crowd
from tests.support.made_situations import jammed
from tests.support.recordings import write
from tests.support.servers import conninfo
from tests.support.situations import Situation
from tests.support.wait_frames import lock_counters_at, queue_at

UNITS = {"", "%", "s", "ms", "ms/s", "1/s", "bytes", "bytes/s", "min", "Mbit/s", "pages"}
AGES = {"waited", "in-state", "xact"}
"""Columns of the lock tree that differ between two samples."""


def queue(second: int) -> Frame:
    activity, locks = queue_at(second)
    counters = lock_counters_at(second)
    return frames.frame(
        second, postgres=frames.postgres_sample(second, activity=activity, locks=locks, lock_counters=counters)
    )


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifteen seconds of a queue for locks."""
    return write(tmp_path_factory.mktemp("recorded") / "run.jsonl", map(queue, range(15)))


def shown(capsys: pytest.CaptureFixture[str], **request: Any) -> str:
    capsys.readouterr()
    assert show_rows(ShowRequest(**request)) == 0
    return capsys.readouterr().out


def test_rows_names_and_words_are_those_of_the_pages() -> None:
    of_pages = {table.id: table for page in all_pages() for table in page.tables}
    session = ShownSession(diagnosed=True)
    session.apply(Step(tuple(queue(second) for second in range(15))))
    for row in TABLES:
        table = row.load()
        assert of_pages.get(table.id, table) is table
        columns = columns_for_programs(table)
        assert len({column.id for column in columns}) == len(columns)
        assert {column.unit for column in columns} <= UNITS, table.id
        assert [column.id for column in table.columns if column not in columns] in ([], ["bar"])
        selection = RowChoice(ShowRequest(subject=row.subject, table=row.id))
        assert shown_table(row.subject, "" if row is shown_table(row.subject, "") else row.id) is row
        rows = table.rows(session)
        moment = selection.of(session, "here")
        if isinstance(moment.rows, list):
            keys = [table.key_of(each) for each in moment.rows]
            assert keys == [table.key_of(each) for each in ordered(table, first_view(table), rows)]  # type: ignore[arg-type]
            assert moment.count == len(keys)
            for column in columns:
                assert column.unit == "" or all(
                    isinstance(program_value(column, each), float | int | None) for each in moment.rows
                ), (table.id, column.id)
        else:
            assert moment.rows == rows
    assert {row.id for row in TABLES} - set(of_pages) == {"finding", "figures"}


def test_the_tree_of_locks_has_depth_root_and_whole_words(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, subject=What.LOCKS, at=("end", recording), format=ShowFormat.JSON)
    document = json.loads(text)
    assert (document["schema"], document["what"]) == ("pgtop-tune.show/1", "locks")
    assert document["time"].endswith("Z")
    assert (document["server"]["version_num"], document["count"]) == (180_006, 7)
    tree = [(row["pid"], row["depth"], row["root"]) for row in document["rows"]]
    assert tree[:3] == [(100, 0, 100), (101, 1, 100), (102, 2, 100)]
    rows = {row["pid"]: row for row in document["rows"]}
    assert (rows[101]["wants"], rows[101]["waited"], rows[102]["others"]) == ("ShareLock", 60_000, [100])
    assert "\x1b" not in text
    units = {column["id"]: column["unit"] for column in document["columns"]}
    assert (units["waited"], units["xact"], units["pid"]) == ("ms", "s", "")


def test_formats_columns_order_and_limit(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen: dict[str, Any] = {
        "subject": What.LOCKS, "at": ("end", recording), "columns": "pid,waited,query", "sort": "waited", "limit": 2
    }  # fmt: skip
    rows = list(csv.reader(io.StringIO(shown(capsys, **chosen, format=ShowFormat.CSV))))
    assert rows[0] == ["time", "pid", "waited", "query"]
    assert [row[1:3] for row in rows[1:]] == [["101", "60000"], ["102", "5000"]]
    lines = [json.loads(line) for line in shown(capsys, **chosen, format=ShowFormat.JSONL).splitlines()]
    assert [line["row"]["pid"] for line in lines] == [101, 102]
    assert {line["schema"] for line in lines} == {"pgtop-tune.show/1"}
    heading, *words = shown(capsys, **chosen).splitlines()
    assert heading.split()[:2] == ["PID", "waits"]
    assert [line.split()[2] for line in words] == ["1m00s", "5.0"]
    with pytest.raises(UsageProblem, match="no column wiated"):
        show_rows(ShowRequest(**{**chosen, "columns": "wiated"}))
    with pytest.raises(UsageProblem, match="has no table disks"):
        show_rows(ShowRequest(**{**chosen, "table": "disks"}))


def test_no_text_in_csv_is_a_formula_or_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def evil(second: int) -> Frame:
        now_ms = frames.EPOCH_MS + second * 1000
        seen = frames.backend(7, now_ms, query="=cmd()", application_name="\x1b]0;x\x07")
        return frames.frame(
            second, postgres=frames.postgres_sample(second, activity=replace(queue_at(second)[0], backends=(seen,)))
        )

    path = write(tmp_path / "evil.jsonl", map(evil, range(3)))
    wanted: dict[str, Any] = {"subject": What.SESSIONS, "at": ("end", path), "columns": "query,application"}
    assert shown(capsys, **wanted, format=ShowFormat.CSV).splitlines()[1].split(",")[1:] == ["'=cmd()", "␛]0;x␇"]
    text = shown(capsys, **wanted, format=ShowFormat.JSON)
    assert json.loads(text)["rows"] == [{"query": "=cmd()", "application": "\x1b]0;x\x07"}]
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("38 %", 38.0, "%"),
        ("85 % of a CPU", 85.0, "%"),
        ("1.50 kB/s", 1536.0, "bytes/s"),
        ("12.4 s", 12.4, "s"),
        ("3m12s", 192.0, "s"),
        ("3d04h", 273_600.0, "s"),
        ("5.91k/s", 5910.0, "1/s"),
        ("12.3k/s", 12_300.0, "1/s"),
        ("150M", 150e6, ""),
        ("1.2 sessions", 1.2, ""),
        ("2.0 of 4 CPUs", 2.0, ""),
        ("at most 1.4 times the throughput", 1.4, ""),
        ("in 3 of 10 samples", 3.0, ""),
        ("4MB", 4194304.0, "bytes"),
        ("row (0,1)", None, ""),
        ("4711: AccessExclusiveLock", None, ""),
    ],
)
def test_evidence_has_its_number_and_unit(text: str, value: float | None, unit: str) -> None:
    assert evidence_value(text) == {"text": text, "value": value, "unit": unit}


def test_the_finding_of_a_moment_is_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    situation = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, load=False)
    path = write(tmp_path / "jam.jsonl", map(situation.frame, range(40)))
    document = json.loads(shown(capsys, subject=What.FINDING, at=("end", path), format=ShowFormat.JSON))
    first = document["rows"][0]
    said = Diagnoser().look_through(situation.interval(40)).first
    assert (first["rank"], first["rule"], first["finding"]) == (1, "lock.jam", said.sentence)
    assert (first["confidence"], first["culprit"]) == (str(said.confidence), said.culprit)
    assert [(entry["label"], entry["text"]) for entry in first["evidence"]] == list(said.evidence)
    assert any(entry["value"] is not None for entry in first["evidence"])
    assert first["actions"] == json.loads(encode(said.deeds))
    assert first["actions"][0]["kind"] == "end session"


def test_what_a_recording_lacks_has_its_reason_and_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def older(second: int) -> Frame:
        return frames.frame(second, postgres=frames.postgres_sample(second, locks=NOT_RECORDED, io=NOT_RECORDED))

    path = write(tmp_path / "older.jsonl", map(older, range(3)))
    lacking = run("show", "io", "--at", "end", str(path), "--json", home=tmp_path)
    assert lacking.status == 9
    assert "io not available: not recorded" in lacking.err
    document = json.loads(lacking.out)
    assert (document["rows"], document["unavailable"]["rows"]["reason"]) == ([], "not recorded")
    with pytest.raises(NotAvailable):
        show_rows(ShowRequest(subject=What.IO, at=("end", path), format=ShowFormat.JSONL))
    assert json.loads(capsys.readouterr().out)["unavailable"]["rows"]["reason"] == "not recorded"
    with pytest.raises(UsageProblem, match="nothing was recorded at 2h"):
        show_rows(ShowRequest(subject=What.LOCKS, at=("2h", path)))
    for moment in ("5m ago", "23:59:59"):
        with pytest.raises(UsageProblem, match="nothing was recorded"):
            show_rows(ShowRequest(subject=What.LOCKS, at=(moment, path)))


@pytest.fixture
def crowd(fresh_server: Throwaway) -> Any:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("CREATE TABLE jam (id int PRIMARY KEY, n int)")
        connection.execute("INSERT INTO jam SELECT g, 0 FROM generate_series(1, 9) g")
        connection.execute("CREATE DATABASE sessions")
    crowd = Crowd(conninfo(fresh_server))
    yield crowd
    crowd.close()


def without_ages(ran: Ran) -> list[dict[str, Any]]:
    assert ran.status == 0, ran.err
    rows = json.loads(ran.out)["rows"]
    assert rows
    return [{name: value for name, value in row.items() if name not in AGES} for row in rows]


def test_a_jam_is_the_same_live_and_from_its_recording(fresh_server: Throwaway, crowd: Crowd, tmp_path: Path) -> None:
    update = "UPDATE jam SET n = n + 1 WHERE id = 1"
    root = crowd.session(update).info.backend_pid
    waiters = [crowd.queues(crowd.session(), update) for _ in range(3)]
    where, path = conninfo(fresh_server), tmp_path / "jam.jsonl"
    recorded = run("record", "-q", "--seconds", "3", "-o", str(path), where, home=tmp_path)
    assert recorded.status == 0, recorded.err
    live = without_ages(run("show", "locks", "--json", where, home=tmp_path))
    assert live == without_ages(run("show", "locks", "--at", "end", str(path), "--json", home=tmp_path))
    assert [(row["pid"], row["root"]) for row in live] == [(pid, root) for pid in (root, *waiters)]
    assert live[0]["blocks"] == 3
    # A database may be called like a word of `show`, and a role may see nothing.
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("CREATE ROLE nobody LOGIN")
    place = {"PGHOST": str(fresh_server.socket_dir), "PGPORT": str(fresh_server.port), "PGUSER": "nobody"}
    hidden = run("show", "locks", "sessions", home=tmp_path, variables=place)
    assert (hidden.status, hidden.out) == (9, "")
    assert "GRANT pg_monitor TO nobody" in hidden.err


@pytest.mark.parametrize(("what", "reason"), [(What.IO, "not supported"), (What.STATEMENTS, "no extension")])
def test_what_a_server_lacks_has_its_reason(
    server_for_major: Callable[[int], Throwaway], tmp_path: Path, what: What, reason: str
) -> None:
    oldest = server_for_major(14)
    with psycopg.connect(conninfo(oldest), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS bare")
        connection.execute("CREATE DATABASE bare")
    with psycopg.connect(conninfo(oldest, "bare"), autocommit=True) as connection:
        connection.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
    ran = run("show", what, "--json", conninfo(oldest, "bare"), home=tmp_path)
    document = json.loads(ran.out)
    assert (ran.status, document["rows"], document["unavailable"]["rows"]["reason"]) == (9, [], reason)
    assert document["unavailable"]["rows"]["detail"] in ran.err


def test_watching_repeats_until_its_reader_goes(server: Throwaway, tmp_path: Path) -> None:
    words = [*PROGRAM, "show", "sessions", "--watch", "0.3s", "--json", conninfo(server)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=ROOT
    )
    assert process.stdout is not None
    heads: list[Any] = []
    for line in process.stdout:
        if line.startswith('{"schema"'):
            heads.append(json.loads(line.rstrip() + "]}"))
        if len(heads) == 2:
            break
    assert heads[0]["time"] < heads[1]["time"]
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_a_server_that_is_not_there_and_a_closed_pipe_have_their_statuses(recording: Path, tmp_path: Path) -> None:
    assert run("show", "sessions", "-h", str(tmp_path), "-w", home=tmp_path).status == 3
    reading, writing = os.pipe()
    os.close(reading)
    words = [*PROGRAM, "show", "locks", "--at", "end", str(recording), "--json"]
    process = subprocess.run(
        words, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=ROOT, check=False
    )
    os.close(writing)
    assert (process.returncode, process.stderr) == (141, "")
