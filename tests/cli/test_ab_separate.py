"""`ab` in blocks that are runs of their own, on a server that pg_ctl manages: restarts, endpoints, profiles, kills."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set_restart import shown, until
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl
from tests.support.kernel import kernel_of_our_own, sysctl
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo

RESTART = ("shared_buffers=current,48MB", "--restart", "--yes")
SHORT = ("-c", "2", "-j", "1", "--block", "3s", "--warmup", "1s", "-w")


@pytest.fixture(scope="module")
def loaded(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Throwaway]:
    """Started by pg_ctl, with pgbench's tables; every test gives it back as it was."""
    made = quick_server(servers.binaries(18))
    try:
        with by_pg_ctl(made) as server:
            home = tmp_path_factory.mktemp("home")
            assert run("bench", "init", "-s", "1", "-w", "-d", conninfo(server), home=home).status == 0
            yield server
    finally:
        made.stop("immediate")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("shared_buffers=32MB,48MB",), 2, "`pgtop-tune ab --restart` judges it with restarts"),
        (("shared_buffers=current,48MB", "--restart"), 2, "pass --yes without a terminal"),
        (("shared_buffers=current,900GB", "--restart", "--yes"), 6, "more than the machine has"),
        ((*RESTART, "--for", "2m"), 2, "2m00s is too short for a verdict"),
        ((*RESTART, "--against-load"), 2, "each block needs its own load"),
        (("--profile", "tpcb-like,tpcb-like"), 2, "A and B are the same profile"),
        (("--profile", "tpcb-like,simple-update", "work_mem=4MB,8MB"), 2, "profile and work_mem differ at once"),
        ((), 2, "nothing to compare"),
        (("--profile", "a,b,c"), 2, "3 profiles given, but `ab` compares two"),
        (("vm.swapiness=60,1",), 2, "did you mean vm.swappiness"),
    ],
)
def test_what_it_cannot_compare_is_refused_before_anything_is_changed(
    loaded: Throwaway, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    before = auto_conf_of(loaded)
    ran = run("ab", *words, "-w", "-d", conninfo(loaded), home=tmp_path)
    assert said in ran.err
    assert ran.status == status
    assert auto_conf_of(loaded) == before
    assert not [*(tmp_path / ".local/state/pgtop-tune/experiments").glob("ab-*")]


@pytest.mark.long
def test_a_value_that_takes_a_restart_is_judged_in_pairs_and_put_back_to_the_byte(
    loaded: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf_of(loaded)
    words = ("ab", *RESTART, *SHORT, "--for", "5m", "--coin", "1", "--format", "json", "-d", conninfo(loaded))
    ran = run(*words, home=tmp_path, timeout_s=400)
    assert ran.status in (0, 8), ran.err
    record = json.loads(ran.out)
    assert record["parameters"] == [{"name": "shared_buffers", "a": "32MB", "b": "48MB"}]
    assert len(record["pairs"]) >= 4, ran.err
    blocks = [block for pair in record["pairs"] for block in pair["blocks"]]
    assert all(len(block["tps"]) >= 2 and block["settled_s"] > 1.0 for block in blocks)
    # Each block begins with a restart, also where its arm stays.
    assert len(re.findall("the server is back", ran.err)) >= len(blocks)
    assert "prewarm: the extension pg_prewarm is missing" in ran.err
    assert auto_conf_of(loaded) == before
    assert shown(loaded, "shared_buffers") == "32MB"


@pytest.mark.also_from_one_file
@pytest.mark.usefixtures("started_from")
@pytest.mark.long
def test_a_kill_at_any_moment_leaves_the_old_values_and_nothing_pending(loaded: Throwaway, tmp_path: Path) -> None:
    before, draw = auto_conf_of(loaded), random.Random(17)
    for _ in range(5):
        process = subprocess.Popen(
            [*PROGRAM, "ab", *RESTART, *SHORT, "--for", "5m", "-d", conninfo(loaded)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment(tmp_path), cwd=ROOT,
        )  # fmt: skip
        try:
            time.sleep(draw.uniform(1.0, 25.0))
        finally:
            process.kill()
            process.wait()
        # A watchdog may be at it: what is in force is what the file says, or it is told as pending.
        until(lambda: auto_conf_of(loaded) == before and shown(loaded, "shared_buffers") == "32MB")
    assert "--set" not in run("revert", "--list", home=tmp_path).out
    again = run("ab", *RESTART, "--for", "1m", "-w", "-d", conninfo(loaded), home=tmp_path)
    assert "1m00s is too short" in again.err


@pytest.mark.long
def test_ctrl_c_restarts_into_the_old_value(loaded: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(loaded)
    process = subprocess.Popen(
        [*PROGRAM, "ab", *RESTART, *SHORT, "--for", "5m", "-d", conninfo(loaded)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if ", B: measuring" in line:
                break
        assert shown(loaded, "shared_buffers") == "48MB"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGINT, err
    assert "interrupted: stopped by the operator" in out
    assert (shown(loaded, "shared_buffers"), auto_conf_of(loaded)) == ("32MB", before)


@pytest.mark.long
@pytest.mark.parametrize("what", ["profile", "endpoint", pytest.param("machine", marks=pytest.mark.root), "backend"])
def test_without_a_restart(loaded: Throwaway, tmp_path: Path, what: str) -> None:
    """Profiles, endpoints, settings of the machine, values of new sessions: a load of its own for each block."""
    before = auto_conf_of(loaded)
    address = f"{loaded.socket_dir}:{loaded.port}/postgres"
    expire = "vm.dirty_expire_centisecs"
    words, names = {
        "profile": (("--profile", "tpcb-like,select-only"), ("profile", "tpcb-like", "select-only")),
        "endpoint": (("--endpoint", f"one={address},two={address}"), ("endpoint", "one", "two")),
        "machine": ((f"{expire}=current,2903",), (expire, sysctl(expire), "2903")),
        "backend": (("post_auth_delay=0,1s",), ("post_auth_delay", "0", "1s")),
    }[what]
    with kernel_of_our_own() if what == "machine" else nullcontext():
        # Four pairs fit, and not many more.
        ran = run(
            "ab", *words, *SHORT, "--for", "90s", "--format", "json", "-d", conninfo(loaded),
            home=tmp_path, timeout_s=300,
        )  # fmt: skip
    record = json.loads(ran.out)
    assert record["parameters"] == [dict(zip(("name", "a", "b"), names, strict=True))]
    assert record["ending"] in ("better", "worse", "equivalent", "undecided", "not attributable", "too little time")
    assert record["pairs"], ran.err
    if what == "profile":
        assert record["evaluation"]["paired"]["relative"] > 0.5
    assert auto_conf_of(loaded) == before


@pytest.mark.long
def test_a_value_that_a_role_overrides_is_refused_and_put_back(loaded: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(loaded)
    with psycopg.connect(conninfo(loaded), autocommit=True) as connection:
        connection.execute("ALTER ROLE CURRENT_USER SET work_mem = '9MB'")
    ran = run(
        "ab", "work_mem=current,64MB", "--restart", "--yes", *SHORT, "--for", "5m", "-d", conninfo(loaded),
        home=tmp_path, timeout_s=200,
    )  # fmt: skip
    with psycopg.connect(conninfo(loaded), autocommit=True) as connection:
        connection.execute("ALTER ROLE CURRENT_USER RESET work_mem")
    assert "work_mem does not reach the load" in ran.out, ran.err
    assert auto_conf_of(loaded) == before
