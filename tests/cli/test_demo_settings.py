"""A demo of a server that is set well, or as badly as one wants; what a kept cluster keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_demo import LINE
from tests.support.servers import MAJORS, NotAvailable, Servers

OF_THE_CALENDAR = {"CFG-04", "CFG-05"}
"""End of life and minor version: a matter of the day the test is run, not of the settings."""
OF_A_DEMO = {"ARC-01", "SEC-15"}
"""An archive is for people to choose; initdb was told to trust this machine."""
OF_THE_MACHINE = {"OS-01", "OS-05", "CPU-01", "DISK-01"}
"""Memory promised to programs of others, swapping, a hypervisor that takes CPU time, a disk that is full."""
OF_THE_LOAD = {"max_wal_size", "min_wal_size"}
"""Advised anew from the rate of WAL that is seen."""


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that the server's account can get to; pytest's own are closed to everybody else."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        (Path(directory) / "tmp").mkdir()
        os.chmod(Path(directory) / "tmp", 0o1777)
        yield Path(directory)


@contextmanager
def demo(home: Path, *words: str) -> Iterator[tuple[str, ...]]:
    """A headless demo whose load runs: how to connect to its server."""
    process = subprocess.Popen(
        [*PROGRAM, "demo", "--headless", "-s", "2", "-c", "2", *words],
        stdout=subprocess.PIPE,
        stderr=(home / "err").open("w"),
        text=True,
        env=environment(home, TMPDIR=str(home / "tmp")),
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        deadline = time.monotonic() + 90
        for line in process.stdout:
            if (found := LINE.match(line)) and found[1] not in ("-", "0.0"):
                break
            assert time.monotonic() < deadline
        sockets = list((home / "tmp").glob("pgtop-*/**/.s.PGSQL.5432"))
        assert sockets, (home / "err").read_text()
        yield ("-h", str(sockets[0].parent), "-U", "postgres", "-d", "postgres")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()


def answer(home: Path, *words: str) -> Any:
    ran = run(*words, home=home)
    assert ran.out, ran.err
    return json.loads(ran.out)


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_an_advised_server_under_its_load_has_two_findings_above_info(
    major: int, servers: Servers, open_directory: Path
) -> None:
    try:
        bin_dir = servers.binaries(major).bin_dir
    except NotAvailable as problem:
        pytest.skip(str(problem))
    home = open_directory
    with demo(home, "--seconds", "60", "--advised", "--pg-bin", str(bin_dir)) as there:
        report = answer(home, "check", "--format", "json", *there)
        proposed = answer(home, "advise", "--seconds", "0", "--format", "json", *there)
    said = (home / "err").read_text()
    above = {each["check"]: each["says"] for each in report["findings"] if each["severity"] != "info"}
    assert above.keys() - OF_THE_CALENDAR - OF_THE_MACHINE == OF_A_DEMO, above
    assert {each["name"] for each in proposed if each["advice"]["differs"]} <= OF_THE_LOAD
    assert "advised: " in said
    assert "shared_buffers " in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("shared_bufers=1GB",), "did you mean shared_buffers"),
        (("work_mem=1MB", "max_connections=0"), "0 is outside the valid range for parameter"),
        (("random_page_cost=cheap",), 'invalid value for parameter "random_page_cost"'),
        (("work_mem",), "is not NAME=VALUE"),
        (("port=5433",), "the demo sets this parameter itself"),
    ],
)
def test_a_setting_that_no_server_takes_is_refused_before_one_is_made(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    given = [part for word in words for part in ("--setting", word)]
    ran = run("demo", "--headless", "--seconds", "1", *given, home=tmp_path)
    assert ran.status == 2
    assert said in ran.err
    assert "creating the cluster" not in ran.err


@pytest.mark.long
def test_a_kept_cluster_has_its_settings_until_a_run_gives_others(open_directory: Path) -> None:
    keep = open_directory / "keep"
    words = ("--seconds", "60", "--keep", str(keep))

    def shown(*more: str) -> tuple[str, str]:
        """shared_buffers and work_mem, as pg_settings has them."""
        with demo(open_directory, *words, *more) as there:
            rows = answer(open_directory, "parameters", "--format", "json", *there)
        values = {row["name"]: row["value"] for row in rows}
        return values["shared_buffers"], values["work_mem"]

    bad = ("--setting", "shared_buffers=16MB", "--setting", "work_mem=1MB")
    assert shown(*bad) == ("16MB", "1MB")
    assert shown() == ("16MB", "1MB")
    buffers, work_mem = shown("--advised", "--setting", "work_mem=1MB")
    assert int(buffers.removesuffix("MB").removesuffix("GB")) > 0
    assert buffers != "16MB"
    assert work_mem == "1MB"
    assert shown("--setting", "work_mem=2MB") == ("128MB", "2MB")
    # ALTER SYSTEM of a session before wins, as on every server, and the demo says so.
    (keep / "data" / "postgresql.auto.conf").write_text("work_mem = '3MB'\n")
    assert shown("--setting", "work_mem=2MB") == ("128MB", "3MB")
    assert "an earlier demo set work_mem" in (open_directory / "err").read_text()
