"""Two real runs of a real server: recorded, compared, kept, run again, reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run


@pytest.mark.long
def test_other_scripts_are_not_refused_for_a_scale_that_pgbench_makes_up(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    target = f"host={fresh_server.socket_dir} port={fresh_server.port} user={fresh_server.user} dbname=postgres"
    for words in (("-s", "2"), ("--dataset", "bus", "--size", "2000")):
        assert run("bench", "init", *words, target, home=tmp_path).status == 0
    recording, records = str(tmp_path / "run.jsonl.gz"), str(tmp_path / "records")
    words = ("--profile", "ticket-read", "-c", "1", "-T", "5", "-q", "--housekeeping", "none")
    ran = run("bench", "run", *words, "--record", recording, "--out", records, target, home=tmp_path)
    assert ran.status == 0, ran.err
    assert run("baseline", "save", "bus", records, home=tmp_path).status == 0
    checked = run("baseline", "check", "bus", recording, home=tmp_path)
    assert "differs" not in checked.out + checked.err, checked.out


@pytest.mark.long
def test_a_baseline_of_own_scripts_is_measured_again_with_the_same_scripts(database: str, tmp_path: Path) -> None:
    script = tmp_path / "own.sql"
    script.write_text("SELECT 1;\n")
    words = ("-f", str(script), "-c", "1", "-T", "2", "--housekeeping", "none", "-q", "--out", str(tmp_path / "out"))
    assert run("bench", "run", *words, database, home=tmp_path).status == 0
    assert run("baseline", "save", "go-live", str(tmp_path / "out"), home=tmp_path).status == 0
    for _ in ("of a record", "of a recording, which has no files"):
        again = run("baseline", "check", "go-live", "--save", "-d", database, home=tmp_path, timeout_s=120)
        assert again.status == 0, again.err
    assert "tps" in again.out
    script.write_text("SELECT 2;\n")
    changed = run("baseline", "check", "go-live", "-d", database, home=tmp_path)
    assert (changed.status, "own.sql: not as in the baseline" in changed.err) == (2, True)
    script.unlink()
    gone = run("baseline", "check", "go-live", "-d", database, home=tmp_path)
    assert (gone.status, "own.sql cannot be read" in gone.err) == (4, True)


@pytest.mark.long
def test_real_runs_are_compared_kept_and_reported(fresh_server: Throwaway, tmp_path: Path) -> None:
    target = f"host={fresh_server.socket_dir} port={fresh_server.port} user={fresh_server.user} dbname=postgres"
    assert run("bench", "init", "-s", "1", target, home=tmp_path).status == 0
    for name in ("a", "b"):
        words = ("bench", "run", "-c", "2", "-R", "100", "-T", "30", "-r", "-q", "--housekeeping", "none")
        out = ("--record", str(tmp_path / f"{name}.jsonl.gz"), "--out", str(tmp_path / name), "--no-query-text")
        measured = run(*words, *out, target, home=tmp_path)
        assert measured.status == 0, measured.err
    sides = [str(tmp_path / f"{name}.jsonl.gz") for name in ("a", "b")]
    compared = run("compare", *sides, "--format", "json", home=tmp_path)
    (found,) = json.loads(compared.out)["comparisons"]
    assert found["comparable"], found["reasons"]
    facts = {fact["name"] for fact in found["a"]["facts"]}
    assert {"CPU model", "clock source", "vm.swappiness", "pgbench scale", "build", "extensions", "pgbench"} <= facts
    (phase,) = found["phases"]
    figures = {row["figure"]: row for row in phase["figures"]}
    assert {"tps", "p99", "latency", "wal_per_tx", "cpu_per_tx"} <= set(figures)
    claims = {"better", "worse", "more", "less", "no difference distinguishable"}
    assert not claims & {row["verdict"] for row in (*phase["figures"], *phase["waits"])}, figures
    assert phase["to_settle"][-1].endswith("pgtop-tune compare settle/A settle/B")
    assert phase["waits"]
    recorded_and_told = run("compare", sides[0], str(tmp_path / "a"), home=tmp_path)
    assert "NOT COMPARABLE" not in recorded_and_told.out, recorded_and_told.out
    assert run("baseline", "save", "go-live", sides[0], home=tmp_path).status == 0
    again = run("baseline", "check", "go-live", "--save", "-d", target, home=tmp_path, timeout_s=180)
    assert again.status == 0, again.err
    assert "tps" in again.out
    report = tmp_path / "report.html"
    assert run("report", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(report), home=tmp_path).status == 0
    assert "UPDATE pgbench_accounts" in report.read_text()
