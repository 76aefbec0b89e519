"""`bench run --load-from`: the load on another machine, the record here."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
from pathlib import Path

import pytest

from tests.bench.sshd import sshd, why_not
from tests.cli.runs import run
from tests.cli.test_bench_run import with_tables


def test_the_load_comes_from_there_and_the_record_says_so(database: str, tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    for name in ("a", "b", "bin"):
        (tmp_path / name).mkdir()
    with sshd(tmp_path / "a") as first, sshd(tmp_path / "b") as second:
        # A user's own configuration of ssh, as his ssh command.
        ssh = tmp_path / "bin" / "ssh"
        program = shutil.which("ssh")
        assert program is not None
        cases = [
            f"*' -p {daemon.address.port} '*) exec {shlex.join([program, *daemon.client[1:]])} \"$@\" ;;\n"
            for daemon in (first, second)
        ]
        ssh.write_text(f'#!/bin/sh\ncase " $* " in\n{"".join(cases)}esac\n')
        ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
        words = ("--profile", "select-only", "-c", "4", "-j", "2", "-T", "2", "-R", "200", "--housekeeping", "none")
        machines = [str(first.address), str(second.address)]
        done = run(
            "bench", "run", *words, "--load-from", machines[0], "--load-from", machines[1], "--format", "json", "-q",
            with_tables(database),
            home=tmp_path, timeout_s=180, variables={"PATH": f"{ssh.parent}:{os.environ['PATH']}"},
        )  # fmt: skip
    assert done.out, done.err
    record = json.loads(done.out)
    assert record["tps"] > 0
    assert record["percentiles"]["logged"] == record["processed"] > 0
    assert record["machine"] == ", ".join(machines)
    assert [(group["machine"], group["clients"]) for group in record["groups"]] == [(name, 2) for name in machines]
    assert sum(group["processed"] for group in record["groups"]) == record["processed"]


def test_an_address_that_is_none_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    done = run("bench", "run", "--load-from", "generator", home=tmp_path)
    assert done.status == 2
    assert "not a valid machine address" in done.err
    assert "ssh://" in done.err
