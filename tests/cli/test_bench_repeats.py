"""`bench run --repeat` and `experiment noise` as a user runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.cli.test_bench_run import QUICK, bench, with_tables
from tests.support.servers import conninfo

NOISE = Path(".local") / "state" / "pgtop-tune" / "noise.json"


@pytest.fixture(scope="module")
def tables(server: Throwaway) -> Iterator[str]:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE DATABASE bench_repeats")
        yield with_tables(conninfo(server, "bench_repeats"))
        connection.execute("DROP DATABASE bench_repeats WITH (FORCE)")


def napping(directory: Path) -> tuple[str, str]:
    """A load that leaves the cores to other tests, and misses no rate where they are busy."""
    (directory / "nap.sql").write_text("SELECT pg_sleep(0.01);\n")
    return "-f", str(directory / "nap.sql")


def test_cells_are_run_there_and_back_and_have_a_row_each(tables: str, tmp_path: Path) -> None:
    words = (*napping(tmp_path), "--steps", "clients=1,2", "-T", "1", "--repeat", "2", *QUICK)
    ran = bench(tables, *words, "--out", str(tmp_path / "out"), "--format", "json", home=tmp_path)
    assert ran.status == 0, ran.err
    told = json.loads(ran.out)
    assert told["order"] == [0, 1, 1, 0]
    assert [each["spec"]["clients"] for each in told["runs"]] == [1, 2, 2, 1]
    assert [cell["runs_made"] for cell in told["cells"]] == [2, 2]
    assert [cell["interval"] for cell in told["cells"]] == [None, None]
    assert [len(told["curves"]), [point["load"] for point in told["curves"][0]["points"]]] == [1, [1.0, 2.0]]
    assert "run 4 of 4" in ran.err
    assert not (tmp_path / NOISE).exists()
    report = tmp_path / "report.md"
    made = run("report", str(tmp_path / "out"), "-o", str(report), home=tmp_path)
    assert made.status == 0, made.err
    assert "sd between runs" in report.read_text()


def test_configurations_are_cells_and_have_a_table_of_their_own(tables: str, tmp_path: Path) -> None:
    configured = ("--configuration", "now:", "--configuration", "late: synchronous_commit=off")
    words = (*napping(tmp_path), "-c", "1", "-T", "1", "--repeat", "2", *configured, *QUICK)
    ran = bench(tables, *words, "--out", str(tmp_path / "out"), home=tmp_path)
    assert ran.status == 0, ran.err
    told = [line for line in ran.err.splitlines() if line.startswith("run ")]
    assert [line.rpartition(", ")[2] for line in told] == ["now", "late", "late", "now"]
    lines = ran.out.splitlines()
    head = next(place for place, line in enumerate(lines) if line.split() == ["tps", "now", "late"])
    assert re.fullmatch(r"nap.sql ×1 +\d+\.\d +\d+\.\d", lines[head + 1])
    assert "late: note ASYNCHRONOUS" in ran.out
    with psycopg.connect(tables) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    records = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").glob("*.json"))]
    assert [record["configuration"] for record in records] == ["now", "late", "late", "now"]
    report = tmp_path / "report.md"
    assert run("report", str(tmp_path / "out"), "-o", str(report), home=tmp_path).status == 0
    assert "nap.sql ×1, late" in report.read_text()


def test_a_goal_for_short_runs_is_refused_before_anything_runs(tables: str, tmp_path: Path) -> None:
    ran = bench(tables, "--until", "±2 %", "-T", "5", *QUICK, home=tmp_path)
    assert ran.status == 2
    assert "runs of 5 s have no interval: --until needs 30 s" in ran.err


def test_too_little_time_for_a_noise_floor_is_refused_with_the_time_it_takes(tables: str, tmp_path: Path) -> None:
    ran = run("experiment", "noise", "--for", "1m", tables, home=tmp_path)
    assert ran.status == 2
    assert "which take 120 s" in ran.err


@pytest.mark.long
def test_the_noise_of_a_load_is_measured_kept_and_refuses_a_goal_out_of_reach(tables: str, tmp_path: Path) -> None:
    """Two minutes of load: the same load is recognised from a recording, and from frames before a run."""
    load = ("--profile", "select-only", "-c", "1")
    words = ("--for", "2m", "--runs", "2", "--housekeeping", "none", "-q", "--format", "json")
    ran = run("experiment", "noise", *load, *words, tables, home=tmp_path, timeout_s=400)
    assert ran.status == 0, ran.err
    told = json.loads(ran.out)
    assert told["kept"]
    assert told["load"]["load"] == "select-only"
    assert told["load"]["scale"] == "1"
    assert told["floor"]["seconds"] >= 30
    assert told["floor"]["autocorrelation_s"] >= 1.0
    assert told["runs"]["runs"] == 2
    assert [each["share"] for each in told["visible"]] == [0.01, 0.02, 0.03, 0.05, 0.1]
    [kept] = json.loads((tmp_path / NOISE).read_bytes())["loads"]
    assert len(kept["groups"]) == 1
    assert kept["floor"]["at_ms"] == told["floor"]["at_ms"]
    refused = bench(tables, *load, "-T", "30", "--until", "0.1%", *QUICK, home=tmp_path)
    assert refused.status == 2, refused.err
    assert "too noisy here for ±0.1 %" in refused.err
    assert "select-only ×1 at scale 1, PostgreSQL 18: noise known since " in refused.err
