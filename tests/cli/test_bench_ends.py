"""`bench run` that ends before its time, and the search for the highest rate, on a real queue: one transaction at a
time holds a lock for some milliseconds, so the server has a capacity that takes hardly any CPU."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.processes import eventually
from tests.support.servers import conninfo

COMMON = ("-i", "0.2", "-c", "4", "-j", "1", "--housekeeping", "none", "-q", "--format", "json")


@pytest.fixture
def queue(tmp_path: Path) -> str:
    script = tmp_path / "queue.sql"
    script.write_text("BEGIN;\nSELECT pg_advisory_xact_lock(40);\nSELECT pg_sleep(0.01);\nEND;\n", encoding="utf-8")
    return str(script)


def test_a_condition_ends_all_runs_with_a_status_of_its_own(queue: str, server: Throwaway, tmp_path: Path) -> None:
    words = ("-f", queue, "--steps", "rate=20,30", "-T", "60", "--abort-if", "p50 > 1ms for 1s", *COMMON)
    ran = run("bench", "run", *words, conninfo(server), home=tmp_path)
    assert ran.status == 10, ran.err
    [only] = json.loads(ran.out)["runs"]
    assert only["state"] == "stopped"
    [doubt] = [doubt for doubt in only["validity"]["doubts"] if doubt["id"] == "ABORTED"]
    assert doubt["verdict"] == "invalid"
    assert "p50>1ms for 1 s" in doubt["reason"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--slo", "p99 > 5ms"), "is not an objective"),
        (("--slo", "p99 < 5ms", "--steps", "rate=1,2"), "--slo contradicts --steps"),
        (("--slo", "p99 < 5ms", "-r"), "a search for the highest rate has no report of statements (-r)"),
        (("--slo", "p99 < 5ms", "-L", "5"), "it skips late transactions, which the objective is about"),
        (("--slo", "p99 < 5ms", "--phases", "hold 1m"), "a search for the highest rate has no phases (--phases)"),
        (("--slo", "p99 of other.sql < 5ms"), "there is no script other.sql"),
        (("--slo", "p99 < 5ms", "--dry-run"), "--slo contradicts --dry-run"),
        (("--slo", "p99 < 5ms", "--find-knee"), "--slo contradicts --find-knee"),
        (("--slo", "p99 < 5ms", "--out", "records"), "--slo contradicts --out"),
        (("--budget", "5m"), "belong to --slo"),
        (("--find-knee", "--phases", "hold 5s"), "--phases contradicts"),
        (("--find-knee", "-R", "100"), "--find-knee contradicts -R"),
        (("--through-outage", "-t", "10"), "--through-outage contradicts -t"),
        (("--through-outage", "--phases", "hold 5s"), "--through-outage contradicts --phases"),
        (("--through-outage", "--find-knee"), "--through-outage contradicts --find-knee"),
        (("--through-outage", "--load-from", "ssh://a"), "--through-outage contradicts --load-from"),
        (("--abort-if", "p99 > 5ms"), "is not a condition"),
        (("--slo", "p99 < 5ms", "--resume", "nothing"), "there is no search nothing"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    words: tuple[str, ...], reason: str, queue: str, server: Throwaway, tmp_path: Path
) -> None:
    ran = run("bench", "run", "-f", queue, *words, *COMMON, conninfo(server), home=tmp_path)
    assert ran.status == 2
    assert reason in ran.err


def test_a_limit_of_one_of_two_scripts_with_the_same_name_is_refused(
    queue: str, server: Throwaway, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/queue.sql").write_text("SELECT 1;\n", encoding="utf-8")
    words = ("-f", queue, "-f", f"{tmp_path}/other/queue.sql", "--slo", "p99 of queue.sql < 5ms", *COMMON)
    ran = run("bench", "run", *words, conninfo(server), home=tmp_path)
    assert (ran.status, "several scripts are named queue.sql" in ran.err) == (2, True)


def test_think_time_inside_a_transaction_is_refused(server: Throwaway, tmp_path: Path) -> None:
    script = tmp_path / "think.sql"
    script.write_text("SELECT 1;\n\\sleep 5 ms\nSELECT 2;\n", encoding="utf-8")
    ran = run("bench", "run", "-f", str(script), "--slo", "p99 < 5ms", *COMMON, conninfo(server), home=tmp_path)
    assert ran.status == 4
    assert "counts as latency" in ran.err


def test_a_search_goes_on_only_with_the_same_load(queue: str, server: Throwaway, tmp_path: Path) -> None:
    words = ["bench", "run", "-f", queue, "--slo", "p95 < 150ms", "-R", "20", *COMMON, conninfo(server)]
    first = subprocess.Popen(
        [*PROGRAM, *words], env=environment(tmp_path), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert eventually(lambda: [path for path in tmp_path.rglob("journal.jsonl") if path.read_text()], 60)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    for more in (("-D", "n=1"), ("-M", "prepared")):
        refused = run(*words, *more, "--resume", "last", home=tmp_path)
        assert (refused.status, "has another load" in refused.err) == (2, True)
    refused = run(*words, "-R", "21", "--resume", "last", home=tmp_path)
    assert (refused.status, "has another first rate: 20" in refused.err) == (2, True)
    Path(queue).write_text("SELECT 1;\n", encoding="utf-8")
    refused = run(*words, "--resume", "last", home=tmp_path)
    assert (refused.status, "has another load" in refused.err) == (2, True)


@pytest.mark.long
def test_overload_ends_a_run_with_its_onset(queue: str, server: Throwaway, tmp_path: Path) -> None:
    ran = run("bench", "run", "-f", queue, "-R", "140", "-T", "120", *COMMON, conninfo(server), home=tmp_path)
    assert ran.status == 4, ran.err
    record = json.loads(ran.out)
    assert len(record["progress"]) < 60
    [doubt] = [doubt for doubt in record["validity"]["doubts"] if doubt["id"] == "OVERLOADED"]
    assert "ended after" in doubt["reason"]


@pytest.mark.long
def test_a_search_that_is_killed_goes_on_and_ends_with_an_interval(
    queue: str, server: Throwaway, tmp_path: Path
) -> None:
    words = ["bench", "run", "-f", queue, "--slo", "p95 < 150ms", "-R", "20", "-T", "20", *COMMON, conninfo(server)]
    command = [*PROGRAM, *words]
    first = subprocess.Popen(
        command, env=environment(tmp_path), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    journals = lambda: list(tmp_path.rglob("journal.jsonl"))  # noqa: E731
    eventually(lambda: any('"outcome"' in path.read_text() for path in journals()), 120)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    ran = run(*words, "--resume", "last", home=tmp_path, timeout_s=1200)
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert found["ending"] == "confirmed"
    assert 40 < found["low_per_s"] < found["high_per_s"] < 140
    again = run(*words, "--resume", "last", home=tmp_path, timeout_s=120)
    assert json.loads(again.out)["low_per_s"] == found["low_per_s"]
