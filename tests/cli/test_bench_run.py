"""`bench run` as a user runs it: one command, a record, and nothing left however it ends."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.run_evidence import evidence_of
from pgtop_tune.model.run_result import RunFacts
from pgtop_tune.recording.reader import RecordingReader
from tests.bench.conftest import by_major
from tests.cli.runs import PROGRAM, ROOT, Ran, environment, run
from tests.cli.test_demo import descendants
from tests.support.accounts import require_root
from tests.support.processes import alive, eventually
from tests.support.servers import NotAvailable, Servers, conninfo

LOG = re.compile(r"--log-prefix=(\S+)/transactions")
QUICK = ("-i", "0.2", "--housekeeping", "none", "-q")


def with_tables(target: str) -> str:
    """The same connection, to a database that has pgbench's tables at scale 1."""
    pgbench = find_pgbench()
    done = subprocess.run(
        [str(pgbench.path), "-i", "-q", "-s", "1", target], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def tables(server: Throwaway) -> Iterator[str]:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE DATABASE bench_run")
        yield with_tables(conninfo(server, "bench_run"))
        connection.execute("DROP DATABASE bench_run WITH (FORCE)")


def bench(target: str, *words: str, home: Path) -> Ran:
    return run("bench", "run", *words, target, home=home, timeout_s=180)


def ids(record: dict[str, Any]) -> set[str]:
    return {doubt["id"] for doubt in record["validity"]["doubts"]}


def test_one_json_object_with_tps_percentiles_validity_and_command(tables: str, tmp_path: Path) -> None:
    with psycopg.connect(tables, autocommit=True) as connection:
        connection.execute("INSERT INTO pgbench_history (tid, bid, aid, delta) VALUES (1, 1, 1, 1)")
    words = ("--profile", "select-only", "-c", "8", "-T", "2", "-i", "0.2", "--format", "json")
    out, recording = tmp_path / "out", tmp_path / "r.jsonl"
    ran = bench(tables, *words, "--out", str(out), "--record", str(recording), home=tmp_path)
    assert ran.status == 0, ran.err
    record = json.loads(ran.out)
    assert record["tps"] == record["report"]["tps"] > 0
    assert 0 < record["percentiles"]["p50_ms"] <= record["percentiles"]["p99_ms"] <= record["percentiles"]["max_ms"]
    assert record["percentiles"]["logged"] == record["processed"]
    histogram = [[int(word) for word in bucket.split(":")] for bucket in record["percentiles"]["histogram"].split()]
    assert sum(count for _, count in histogram) == record["processed"]
    assert histogram == sorted(histogram)
    assert (record["validity"]["valid"], record["validity"]["partial"]) == (True, False)
    assert {"SHORT-RUN", "CLOSED-LOOP", "NOT-DURABLE"} <= ids(record)
    assert " -n " in record["command"]
    assert " -b select-only " in record["command"]
    assert record["facts"]["warnings"] == []
    assert [step["name"] for step in record["facts"]["housekeeping"]] == [
        "truncate-history", "vacuum", "checkpoint", "quiet",
    ]  # fmt: skip
    with psycopg.connect(tables) as connection:
        assert connection.execute("SELECT count(*) FROM pgbench_history").fetchone() == (0,)
    assert "of 2 s" in ran.err
    [kept] = out.glob("01-select-only-c8-j*-T2-*.json")
    assert json.loads(kept.read_text()) == record
    assert kept.with_suffix(".stdout").read_text() == record["stdout"]
    reader = RecordingReader(recording)
    again = evidence_of([frame for _, frame in reader.frames()], 1, RunFacts())
    reader.close()
    assert again is not None
    assert again.generator.threads == record["generator"]["threads"]
    assert [line.tps for line in again.progress] == [line["tps"] for line in record["progress"]]


def test_a_failed_cell_is_a_result_with_its_reason_and_the_next_ones_go_on(
    tables: str, server: Throwaway, tmp_path: Path
) -> None:
    ran = bench(
        tables, "--profile", "select-only", "--steps", "clients=1,120,2", "-j", "1", "-t", "50", *QUICK,
        "--endpoint", f"direct={server.socket_dir}:{server.port}", "--endpoint", "nowhere=127.0.0.1:1",
        "--format", "markdown", home=tmp_path,
    )  # fmt: skip
    assert ran.status == 4
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ran.out.splitlines() if line.startswith("|")]
    assert rows[0][:2] == ["endpoint", "clients"]
    by_cell = {(row[0], row[1]): row[2:] for row in rows[2:]}
    assert by_cell["direct", "1"][0] == "50"
    assert by_cell["direct", "2"][0] == "100"
    assert "120 clients will not fit: max_connections is 100" in by_cell["direct", "120"][-1]
    assert by_cell["nowhere", "1"][-1].startswith("failed: Connection refused")
    assert "- direct select-only: no knee seen: needs 3 successful steps" in ran.out


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that takes nothing more."""
    disk = tmp_path / "disk"
    disk.mkdir()
    require_root()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
def test_a_full_disk_for_records_costs_the_files_and_not_the_measurement(
    tables: str, tmp_path: Path, full_disk: Path
) -> None:
    words = ("--profile", "select-only", "--profile", "simple-update", "-c", "1", "-t", "30", *QUICK)
    ran = bench(tables, *words, "--out", str(full_disk), home=tmp_path)
    assert ran.status == 5
    assert ran.out.splitlines()[1].split() == ["transactions", "30", "30"]
    assert "2 of 2 records could not be saved" in ran.err
    assert "No space left on device" in ran.err
    assert [each.name for each in full_disk.iterdir()] == ["ballast"]


@pytest.mark.root
def test_a_log_directory_without_room_makes_the_run_invalid(tables: str, tmp_path: Path) -> None:
    """In a mount namespace of our own, with 16 kB of shared memory for the log: little even where the load is slow."""
    place = psycopg.conninfo.conninfo_to_dict(tables)["host"]
    # The server may be in shared memory itself: its directory stays in sight.
    (seen := tmp_path / "server").mkdir()
    small = 'mount --bind "$0" "$1" && shift && mount -t tmpfs -o size=16k none /dev/shm && exec "$@"'
    target = f"{tables} host={seen}"
    words = ("bench", "run", "--profile", "select-only", "-c", "4", "-T", "3", *QUICK, "--format", "json", target)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", small, str(place), str(seen), *PROGRAM, *words],
        capture_output=True, text=True, timeout=90,
        env=environment(tmp_path, TMPDIR="/dev/shm"), cwd=ROOT, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("a file system cannot be mounted here")
    record = json.loads(done.stdout)
    (doubt,) = (doubt for doubt in record["validity"]["doubts"] if doubt["id"] == "LOG-INCOMPLETE")
    assert (record["state"], record["validity"]["valid"], doubt["verdict"]) == ("finished", False, "invalid")
    lost = record["processed"] - record["percentiles"]["logged"]
    assert lost > 0
    assert f"lacks {lost} of {record['processed']} transactions: p99 " in doubt["reason"]


def test_another_database_is_not_prepared_by_what_is_done_in_the_watched_one(
    server: Throwaway, tables: str, tmp_path: Path
) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS watched WITH (FORCE)")
        connection.execute("CREATE DATABASE watched")
    watched = conninfo(server, "watched")
    with psycopg.connect(watched, autocommit=True) as connection:
        connection.execute("CREATE TABLE pgbench_history AS SELECT 1 AS tid, 1 AS bid, 1 AS aid, 1 AS delta")
    where = ("--endpoint", f"load={server.socket_dir}:{server.port}/bench_run")
    words = ("-c", "1", "-t", "20", "-i", "0.2", "-q", "--format", "json")
    ran = bench(watched, *where, *words, "--housekeeping", "truncate-history", home=tmp_path)
    assert ran.status in (0, 4), ran.err
    record = json.loads(ran.out)
    assert "HOUSEKEEPING-MISSED" in ids(record)
    assert "the load runs in another database, bench_run" in record["facts"]["housekeeping"][0]["problem"]
    with psycopg.connect(watched) as connection:
        assert connection.execute("SELECT count(*) FROM pgbench_history").fetchall() == [(1,)]
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("DROP DATABASE watched WITH (FORCE)")


def test_three_profiles_side_by_side(tables: str, tmp_path: Path) -> None:
    profiles = ("tpcb-like", "select-only", "simple-update")
    words = [word for name in profiles for word in ("--profile", name)]
    ran = bench(tables, *words, "-c", "2", "-t", "30", *QUICK, home=tmp_path)
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].split() == list(profiles)
    assert lines[1].split() == ["transactions", "60", "60", "60"]
    figures = {words[0]: list(map(float, words[1:])) for line in lines[6:8] if (words := line.split())}
    assert figures["qps"] == pytest.approx(
        [tps * each for tps, each in zip(figures["tps"], (7, 1, 5), strict=True)], 0.01
    )
    assert "\ntpcb-like: suspect SCALE-BELOW-CLIENTS: 2 clients update 1 branch row" in ran.out
    assert [line.partition(" CLOSED-LOOP")[0] for line in lines if "CLOSED-LOOP" in line] == ["all: note"]


def test_scripts_of_ones_own_with_weights_variables_and_statements(tables: str, tmp_path: Path) -> None:
    (tmp_path / "read.sql").write_text("SELECT :n AS number;\n")
    (tmp_path / "count.sql").write_text("SELECT count(*) FROM pgbench_branches;\n")
    ran = bench(
        tables, "-f", f"{tmp_path}/read.sql@3", "-f", f"{tmp_path}/count.sql", "-D", "n=7", "-r", "--seed", "5",
        "-c", "1", "-R", "80", "--phases", "hold 2s, hold 2s at 2", "--format", "json", *QUICK, home=tmp_path,
    )  # fmt: skip
    assert ran.status == 0, ran.err
    record = json.loads(ran.out)
    assert [level["levels"][0]["clients"] for level in record["levels"]] == [1, 2]
    assert sum(level["transactions"] for level in record["levels"]) == record["processed"] == record["facts"]["logged"]
    assert len(record["groups"]) == 2
    assert len(record["seams"]) == 1
    assert [(script["name"], script["weight"]) for script in record["scripts"]] == [("read.sql", 3), ("count.sql", 1)]
    assert all(len(script["sha256"]) == 64 for script in record["scripts"])
    assert [script["statements"] for script in record["scripts"]] == [1, 1]
    assert record["qps"] == pytest.approx(record["tps"], rel=0.01)
    assert record["profile"] == ""
    assert "-D n=7" in record["command"]
    assert [row["script"] for row in record["by_script"]] == ["read.sql", "count.sql"]
    assert sum(script["processed"] for script in record["report"]["scripts"]) == record["processed"]
    assert [script["statements"][0]["text"] for script in record["report"]["scripts"]] == [
        "SELECT :n AS number;", "SELECT count(*) FROM pgbench_branches;",
    ]  # fmt: skip


def test_each_of_several_scripts_has_its_throughput_whatever_their_directories(tables: str, tmp_path: Path) -> None:
    for name in ("never", "often", "seldom"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "read.sql").write_text("SELECT 1;\n", encoding="utf-8")
    weights = {"never": 0, "often": 9, "seldom": 1}
    files = [word for name, weight in weights.items() for word in ("-f", f"{tmp_path}/{name}/read.sql@{weight}")]
    ran = bench(tables, *files, "-c", "1", "-R", "400", "-T", "3", *QUICK, home=tmp_path)
    assert ran.status == 0, ran.err
    often, seldom = (float(text) for text in re.findall(r"^read\.sql: ([0-9.]+) tps, latency", ran.out, re.MULTILINE))
    assert often > 3.0 * seldom > 0.0


def test_a_script_of_the_operator_s_has_the_scale_of_the_tables_and_the_simple_protocol(
    tables: str, tmp_path: Path
) -> None:
    (tmp_path / "own.sql").write_text("SELECT 1 / (count(*) = :scale)::int FROM pgbench_branches \\; SELECT 2;\n")
    with psycopg.connect(tables, autocommit=True) as connection:
        connection.execute("INSERT INTO pgbench_branches VALUES (77, 0)")
        try:
            ran = bench(tables, "-f", f"{tmp_path}/own.sql", "-c", "1", "-t", "4", *QUICK, home=tmp_path)
        finally:
            connection.execute("DELETE FROM pgbench_branches WHERE bid = 77")
    assert ran.status == 0, ran
    assert ":scale is 2, from pgbench" in f"{ran}"


@pytest.mark.parametrize("protocol", ["simple", "prepared"])
def test_of_several_scripts_the_one_that_failed_is_named(tables: str, tmp_path: Path, protocol: str) -> None:
    (tmp_path / "good.sql").write_text("SELECT 1;\n")
    (tmp_path / "bad.sql").write_text("SELECT 1;\nSELECT * FROM nix;\n")
    scripts = ("-f", f"{tmp_path}/good.sql", "-f", f"{tmp_path}/bad.sql")
    ran = bench(tables, *scripts, "-c", "1", "-t", "40", "-M", protocol, "--seed", "1", *QUICK, home=tmp_path)
    assert ran.status == 4
    assert re.search(r'failed: bad\.sql: .*relation "nix" does not exist', ran.out), ran.out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("-f", "wrong.sql", "-t", "1"), 4, ("syntax error", "wrong.sql:2")),
        (("-f", "shell.sql", "-t", "1"), 4, ("run programs on this machine",)),
        (("-f", "absent.sql", "-t", "1"), 4, ("absent.sql cannot be read",)),
        (("-T", "1", "-t", "1"), 2, ("contradict",)),
        (("--profile", "none-such"), 4, ("no load profile named",)),
        (("--housekeeping", "dust"), 2, ("'dust' is not a housekeeping step",)),
        (("-D", "7"), 2, ("not a variable",)),
    ],
)
def test_what_cannot_run_is_said_in_words_that_help(
    tables: str, tmp_path: Path, words: tuple[str, ...], status: int, said: tuple[str, ...]
) -> None:
    (tmp_path / "wrong.sql").write_text("SELECT 1;\n\\set x 1 +\n")
    (tmp_path / "shell.sql").write_text("\\shell true\n")
    words = tuple(f"{tmp_path}/{word}" if word.endswith(".sql") else word for word in words)
    quick = QUICK if "--housekeeping" not in words else ("-i", "0.2")
    ran = bench(tables, *words, *quick, home=tmp_path)
    assert ran.status == status
    assert all(each in ran.err for each in said), ran.err
    assert "Traceback" not in ran.err


def test_without_tables_making_them_is_offered(database: str, tmp_path: Path) -> None:
    ran = bench(database, "-t", "1", *QUICK, home=tmp_path)
    assert ran.status == 4
    assert "there are no tables of the pgbench data set" in ran.err
    assert "bench init" in ran.out


class UnderWay:
    """A run of a hundred seconds, two of them done."""

    def __init__(self, target: str, home: Path, load: Sequence[str] = ("-T", "100"), at_s: int = 2) -> None:
        self.errors = (home / "stderr").open("w")
        self.process = subprocess.Popen(
            [*PROGRAM, "bench", "run", "-c", "2", "-R", "100", *load, *QUICK[:-1], "--format", "json", target],
            stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment(home), cwd=ROOT,
        )  # fmt: skip
        assert eventually(lambda: f"{at_s} of 100 s" in (home / "stderr").read_text(), 60), (
            home / "stderr"
        ).read_text()
        self.children = descendants(self.process.pid)
        self.log, *_ = {Path(found[1]) for name in self.children.values() if (found := LOG.search(name))}
        assert self.log.is_dir()

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=90)
        self.errors.close()
        assert eventually(lambda: not any(alive(pid) for pid in self.children)), self.children
        assert eventually(lambda: not self.log.exists())
        return self.process.returncode, out


def left_of(target: str) -> list[Any]:
    """Sessions of pgbench that the server still has in this database."""
    with psycopg.connect(target, autocommit=True) as connection:
        return connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench' AND datname = current_database()"
        ).fetchall()


@pytest.mark.parametrize(
    ("numbers", "status"),
    [
        ((signal.SIGINT,), 130),
        pytest.param((signal.SIGTERM,), 143, marks=pytest.mark.long),
        ((signal.SIGINT, signal.SIGINT), 130),
    ],
)
def test_stopped_in_the_middle_what_was_measured_is_kept_and_marked(
    tables: str, tmp_path: Path, numbers: tuple[int, ...], status: int
) -> None:
    under_way = UnderWay(tables, tmp_path)
    for number in numbers:
        under_way.process.send_signal(number)
        time.sleep(0.02)  # two signals of one number that are pending at once are one
    left, out = under_way.end()
    assert left == status
    record = json.loads(out)
    assert (record["validity"]["valid"], record["validity"]["partial"], record["state"]) == (False, True, "stopped")
    assert "RUN-PARTIAL" in ids(record)
    assert record["tps"] > 0
    assert len(record["progress"]) >= 2
    assert eventually(lambda: not left_of(tables))


@pytest.mark.long
@pytest.mark.parametrize(("load", "at_s"), [(("-T", "100"), 2), (("--phases", "ramp 2..21 over 100s"), 6)])
def test_killed_it_leaves_nothing_running(tables: str, tmp_path: Path, load: Sequence[str], at_s: int) -> None:
    under_way = UnderWay(tables, tmp_path, load, at_s)
    under_way.process.kill()
    under_way.end()
    assert eventually(lambda: not left_of(tables))


def test_a_server_that_goes_away_in_the_middle_is_a_result_with_pgbench_s_words(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server()
    under_way = UnderWay(with_tables(conninfo(server)), tmp_path)
    server.stop("immediate")
    status, out = under_way.end()
    assert status == 4
    record = json.loads(out)
    assert record["state"] == "failed"
    assert record["exit_status"] == 2
    assert record["validity"]["valid"] is False
    assert {"RUN-FAILED"} <= ids(record)
    assert len(record["progress"]) >= 2
    assert record["tps"] > 0
    assert "aborted" in record["message"] or "terminating" in record["message"] or "closed" in record["message"]


def test_a_server_that_is_not_there_is_a_connection_problem(tmp_path: Path) -> None:
    ran = bench("host=127.0.0.1 port=1 dbname=x user=x", "-t", "1", *QUICK, home=tmp_path)
    assert ran.status == 3
    assert "nothing is listening on this port" in ran.err
    assert ran.out == ""


def test_a_script_comes_through_standard_input(tables: str, tmp_path: Path) -> None:
    command = [*PROGRAM, "bench", "run", *QUICK, "-f", "-@2", "-t", "20", "-c", "1", "--format", "json", tables]
    done = subprocess.run(
        command, input="SELECT 1;\n", capture_output=True, text=True, timeout=90, env=environment(tmp_path), cwd=ROOT,
        check=False,
    )  # fmt: skip
    record = json.loads(done.stdout)
    assert record["tps"] > 0, done.stderr
    assert "/stdin.sql@2" in record["command"]
    refused = run("bench", "run", *QUICK, "-f", "-", "-T", "1", tables, home=tmp_path)
    assert refused.status == 4, "an empty script is none"


def test_a_load_that_continues_after_errors_has_a_result(servers: Servers, tables: str, tmp_path: Path) -> None:
    script = tmp_path / "divides.sql"
    script.write_text("\\set n random(1, 25)\nSELECT 1 / (:n - 1);\n")
    words = ("-f", str(script), "-c", "2", "-T", "2", *QUICK, "--format", "json", "--continue-on-error")
    try:
        newest = servers.binaries(19).bin_dir / "pgbench"
    except NotAvailable as problem:
        pytest.skip(f"no pgbench 19: {problem}")
    ran = bench(tables, *words, "--pgbench", str(newest), home=tmp_path)
    assert ran.status == 0, ran.err
    record = json.loads(ran.out)
    assert record["spec"]["continue_on_error"] is True
    assert record["failed"] > 0
    (doubt,) = (doubt for doubt in record["validity"]["doubts"] if doubt["id"] == "FAILED-TRANSACTIONS")
    assert doubt["verdict"] == "suspect"
    assert re.search(r"\d other\)", doubt["reason"])
    assert record["percentiles"]["logged"] == record["processed"] > record["failed"]
    assert record["tps"] == record["report"]["tps"] == pytest.approx(record["processed"] / 2, rel=0.5)

    older = by_major()[18]
    ran = bench(tables, *words, "--pgbench", str(older.path), home=tmp_path)
    assert ran.status != 0
    assert f"--continue-on-error) needs pgbench 19 or later; {older.path} is version 18" in " ".join(ran.err.split())
