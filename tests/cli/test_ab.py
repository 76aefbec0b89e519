"""`ab` on real servers under a real load: refusals, a verdict, and a kill in mid-block."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.ab.experiment import rivals_of
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.switchback.arms import Rival
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set import shown, until
from tests.support.servers import conninfo


def auto_conf(server: Throwaway) -> bytes:
    return (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()


def test_words_are_a_name_and_two_values() -> None:
    assert rivals_of(["work_mem=current,64MB"]) == (Rival("work_mem", "current", "64MB"),)
    assert rivals_of(["log_line_prefix = Current , %m [%p] "]) == (Rival("log_line_prefix", "current", "%m [%p] "),)
    for words, said in (
        (["work_mem=64MB"], "not NAME=A,B"),
        (["work_mem=1MB,2MB,3MB"], "not NAME=A,B"),
        (["work_mem=64MB,current"], "only A may be current"),
        (["work_mem=1MB,2MB", "WORK_MEM=1MB,4MB"], "named twice"),
    ):
        with pytest.raises(UsageProblem, match=said):
            rivals_of(words)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "nothing to compare"),
        (("shared_buffers=128MB,256MB",), 2, "shared_buffers takes a restart of the server"),
        (("wrok_mem=4MB,8MB",), 2, "did you mean work_mem"),
        (("work_mem=4MB,8apples",), 2, "this parameter has no unit apples"),
        (("work_mem=current,4MB",), 2, "A and B are both 4MB"),
        (("full_page_writes=on,off",), 6, "full_page_writes = off can lose"),
        (("synchronous_commit=on,off", "--keep", "better"), 6, "--keep better never keeps such a value"),
        (("work_mem=current,8MB", "--for", "1m"), 2, "four pairs of blocks and the warm-up need --for 2m10s"),
        (("--profile", "tpcb-like,select-only", "--block", "0"), 2, "--block needs a time above zero"),
        (("--profile", "tpcb-like,select-only", "--warmup", "0"), 2, "--warmup needs a time above zero"),
        (("wrok_mem=4MB,8MB", "--against-load", "-c", "4"), 2, "starts no load: --clients has no effect"),
        (("work_mem=current,8MB",), 4, "create them first: pgtop-tune bench init"),
    ],
)
def test_what_it_cannot_compare_is_refused_before_anything_is_changed(
    fresh_server: Throwaway, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    before = auto_conf(fresh_server)
    ran = run("ab", *words, "-w", "-d", conninfo(fresh_server), home=tmp_path)
    assert said in ran.err
    assert ran.status == status
    assert auto_conf(fresh_server) == before
    assert not [*(tmp_path / ".local/state/pgtop-tune/experiments").glob("ab-*")]


@pytest.fixture
def loaded(make_server: Callable[..., Throwaway], tmp_path: Path) -> Throwaway:
    """A server with commits that wait for a disk, and pgbench's tables."""
    server = make_server(fsync="on")
    assert run("bench", "init", "-s", "5", "-w", "-d", conninfo(server), home=tmp_path).status == 0
    return server


@pytest.mark.long
def test_commits_that_do_not_wait_for_the_disk_are_found_better(loaded: Throwaway, tmp_path: Path) -> None:
    before = auto_conf(loaded)
    ran = run(
        "ab", "synchronous_commit=on,off", "-c", "4", "-j", "1", "--for", "8m", "--format", "json",
        "--allow-unsafe", "--confirm", "synchronous_commit", "-w", "-d", conninfo(loaded),
        home=tmp_path, timeout_s=600,
    )  # fmt: skip
    record = json.loads(ran.out)
    assert record["format"] == "pgtop-tune-ab/1"
    # A machine that others load may allow no claim; never the wrong one.
    assert record["ending"] in ("better", "undecided", "not attributable"), ran.err
    assert record["evaluation"]["paired"]["relative"] > 0.0
    assert ran.status == (0 if record["ending"] == "better" else 8)
    assert len(record["pairs"][0]["blocks"]) == 2
    assert auto_conf(loaded) == before
    assert shown(loaded, "synchronous_commit") == "on"
    (kept,) = (tmp_path / ".local/state/pgtop-tune/experiments").glob("ab-*")
    assert json.loads(kept.read_text())["pairs"] == record["pairs"]


@pytest.mark.also_from_one_file
@pytest.mark.usefixtures("started_from")
@pytest.mark.long
def test_a_kill_in_mid_block_leaves_the_old_value(loaded: Throwaway, tmp_path: Path) -> None:
    before = auto_conf(loaded)
    process = subprocess.Popen(
        [*PROGRAM, "ab", "work_mem=current,64MB", "-c", "2", "--for", "5m", "-w", "-d", conninfo(loaded)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if ", B: measuring" in line:
                break
        assert shown(loaded, "work_mem") == "64MB"
        other = run("ab", "jit=on,off", "--for", "5m", "-w", "-d", conninfo(loaded), home=tmp_path)
        assert "another experiment runs on this server (ab, process" in other.err
    finally:
        process.kill()
        process.communicate()
    until(lambda: shown(loaded, "work_mem") == "4MB")
    until(lambda: auto_conf(loaded) == before)


@pytest.mark.long
def test_ctrl_c_puts_everything_back_and_tells_what_was_measured(loaded: Throwaway, tmp_path: Path) -> None:
    before = auto_conf(loaded)
    process = subprocess.Popen(
        [*PROGRAM, "ab", "work_mem=current,64MB", "-c", "2", "--for", "5m", "-w", "-d", conninfo(loaded)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "  pair 1: " in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGINT
    assert "interrupted: stopped by the operator" in out
    assert "record: " in err
    assert auto_conf(loaded) == before
