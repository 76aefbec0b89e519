"""Flushes, clock and memory are measured, without a trace on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgtop_tune.cluster.binaries import available
from pgtop_tune.host.flush_meter import (
    METHODS,
    PASSES,
    PROGRAM,
    copied_bytes_per_s,
    measure_flushes,
    one_method,
    parse_overhead,
    program_beside,
    program_flushes,
    timer_overhead_ns,
)
from pgtop_tune.model.absence import Reason, Unavailable


@pytest.mark.parametrize("method", METHODS)
def test_flushes_are_counted_and_no_file_is_left(method: str, tmp_path: Path) -> None:
    seen = measure_flushes(tmp_path, method, 0.02)
    if isinstance(seen, Unavailable):
        pytest.skip(f"this file system has no unnamed files: {seen}")
    assert seen.method == method
    assert seen.count > 0
    assert len(seen.rates) == PASSES
    assert 0 < seen.median_ms <= seen.p99_ms
    assert list(tmp_path.iterdir()) == []


def test_the_rate_is_the_count_by_the_time(tmp_path: Path) -> None:
    ticks = iter(number * 0.001 for number in range(100_000))
    seen = measure_flushes(tmp_path, "fdatasync", 0.0475, clock=lambda: next(ticks))
    if isinstance(seen, Unavailable):
        pytest.skip(f"this file system has no unnamed files: {seen}")
    assert seen.count == 50
    assert seen.per_s == pytest.approx(1000.0)
    assert seen.median_ms == pytest.approx(1.0)


def test_what_cannot_be_measured_says_why(tmp_path: Path) -> None:
    other = measure_flushes(tmp_path, "fsync_writethrough", 0.01)
    assert isinstance(other, Unavailable)
    assert "fsync_writethrough" in other.detail
    gone = measure_flushes(tmp_path / "none", "fdatasync", 0.01)
    assert isinstance(gone, Unavailable)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("        fdatasync                          1940.123 ops/sec     515 usecs/op\n", {"fdatasync": 1940.123}),
        ("        open_datasync                       n/a*\n", {}),
        ("        fsync_writethrough                  2.000 ops/sec  500000 usecs/op\n", {}),
        ("        write, fsync, close                 261.990 ops/sec    3817 usecs/op\n", {}),
        ("         2 *  8kB open_sync writes          169.657 ops/sec    5894 usecs/op\n", {}),
        ("        fsync                               0.000 ops/sec       0 usecs/op\n", {}),
        ("1 second per test\n", {}),
    ],
)
def test_the_lines_of_pg_test_fsync_are_known(line: str, told: dict[str, float]) -> None:
    assert one_method(line) == told


async def test_pg_test_fsync_is_ended_in_time_and_leaves_no_file(tmp_path: Path) -> None:
    program = program_beside(None, PROGRAM) or next(
        (each.bin_dir / PROGRAM for each in available() if (each.bin_dir / PROGRAM).is_file()), None
    )
    if program is None:
        pytest.skip("no pg_test_fsync here")
    seen = await program_flushes(program, tmp_path, 1.6)
    if isinstance(seen, Unavailable) and seen.reason is Reason.NOT_SUPPORTED:
        pytest.skip(f"this file system has no unnamed files: {seen}")
    assert isinstance(seen, Unavailable) or all(rate > 0 for rate in seen.values())
    assert list(tmp_path.iterdir()) == []
    nothing = await program_flushes(Path("/bin/echo"), tmp_path, 1.0)
    assert isinstance(nothing, Unavailable)
    gone = await program_flushes(tmp_path / "none", tmp_path, 1.0)
    assert isinstance(gone, Unavailable)


@pytest.mark.parametrize(
    ("said", "spent_ns"),
    [
        ("Testing timing overhead for 1 second.\nPer loop time including overhead: 22.36 ns\n", 22.36),
        ("Testing timing overhead for 1 second.\nAverage loop time including overhead: 41.20 ns\n", 41.2),
    ],
)
def test_the_words_of_pg_test_timing_are_known(said: str, spent_ns: float) -> None:
    assert parse_overhead(said) == spent_ns


OF_19 = """\
System clock source: clock_gettime (CLOCK_MONOTONIC)
Average loop time including overhead: 35.63 ns

Clock source: RDTSCP
Average loop time including overhead: 30.55 ns

Fast clock source: RDTSC
Average loop time including overhead: 22.91 ns
"""


def test_of_several_clock_sources_the_one_that_the_server_reads_counts() -> None:
    assert parse_overhead(OF_19) == 35.63
    assert parse_overhead(OF_19, tsc=True) == 30.55
    of_18 = parse_overhead("Average loop time including overhead: 41.20 ns\n", tsc=True)
    assert isinstance(of_18, Unavailable), "a figure of another clock is no answer"
    assert of_18.detail == "the output of pg_test_timing lacks the processor's clock source"


def test_other_words_are_no_number() -> None:
    assert isinstance(parse_overhead("Detected clock going backwards in time."), Unavailable)


def test_a_program_of_the_servers_own_installation_is_run(tmp_path: Path) -> None:
    program = tmp_path / "pg_test_timing"
    program.write_text("#!/bin/sh\necho 'Per loop time including overhead: 7.5 ns'\n")
    program.chmod(0o755)
    assert timer_overhead_ns(program) == 7.5
    failing = timer_overhead_ns(tmp_path / "none")
    assert isinstance(failing, Unavailable)
    assert failing.reason is Reason.FAILED


def test_a_program_may_say_more_than_a_pipe_holds(tmp_path: Path) -> None:
    program = tmp_path / "pg_test_timing"
    program.write_text("#!/bin/sh\nseq 1 40000\necho 'Per loop time including overhead: 7.5 ns'\n")
    program.chmod(0o755)
    assert timer_overhead_ns(program) == 7.5


def test_a_strangers_program_is_not_run_as_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pg_test_timing"
    program.write_text("#!/bin/sh\n")
    tmp_path.chmod(0o755)
    monkeypatch.setattr(os, "readlink", lambda path: str(tmp_path / "postgres"))
    monkeypatch.setenv("PATH", "")
    program.chmod(0o755)
    assert program_beside(1) == program
    program.chmod(0o757)
    assert program_beside(1) is None


def test_memory_is_copied_at_some_speed() -> None:
    assert copied_bytes_per_s() > 0


def test_a_system_without_fdatasync_and_unnamed_files_says_so() -> None:
    code = (
        "import os; del os.fdatasync, os.O_TMPFILE\n"
        "from pathlib import Path\n"
        "from pgtop_tune.host.flush_meter import METHODS, measure_flushes\n"
        "print(sorted(METHODS), measure_flushes(Path('/tmp'), 'fsync', 1.0))\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("['fsync', 'open_datasync', 'open_sync'] ")
    assert "this system has no unnamed files" in said
