"""`set`, `reset` and `revert` for settings of the operating system, alone and beside parameters of a server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.machine.one_change import pool_of
from pgtop_tune.cli.app import program
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.block_devices import ROOT as MACHINE
from pgtop_tune.host.sysctl_files import PATH as DROP_IN
from pgtop_tune.host.system_settings import path_of
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set import setting, shown, until
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl, run_pg_ctl
from tests.support.kernel import NR_HUGEPAGES, kernel, kernel_left_alone, kernel_of_our_own, sysctl
from tests.support.servers import conninfo

EXPIRE = "vm.dirty_expire_centisecs"
WRITEBACK = "vm.dirty_writeback_centisecs"
NOWHERE = "host=/nowhere dbname=x"


@pytest.fixture
def machine() -> Iterator[dict[str, str]]:
    with kernel_of_our_own() as before:
        yield before


@pytest.fixture
def still() -> Iterator[dict[str, str]]:
    with kernel_left_alone() as before:
        yield before


@pytest.mark.root
def test_parameters_and_settings_of_the_machine_are_one_set_and_taken_back_as_one(
    machine: dict[str, str], server: Throwaway, tmp_path: Path
) -> None:
    target, expire = conninfo(server), sysctl(EXPIRE)
    ran = run("set", "max_wal_size=2GB", f"{EXPIRE}=2901", "-d", target, home=tmp_path)
    assert ran.status == 0, ran.err
    assert ran.out.splitlines() == [
        f"sudo sysctl -w {EXPIRE}=2901",
        "ALTER SYSTEM SET \"max_wal_size\" = '2GB';",
        "SELECT pg_reload_conf();",
        f"{EXPIRE}: {expire} → 2901",
        "max_wal_size: 1GB → 2GB",
    ]
    assert (sysctl(EXPIRE), shown(server, "max_wal_size")) == ("2901", "2GB")
    listed = run("revert", "--list", home=tmp_path).out
    assert len(set(re.findall(r"--set (\w+)", listed))) == 1, listed
    ran = run("revert", "--last", "-d", target, home=tmp_path)
    assert ran.status == 0, ran.err
    assert ran.out.endswith("2 changes reverted\n")
    assert shown(server, "max_wal_size") == "1GB"
    assert kernel() == machine


@pytest.mark.root
def test_without_a_server_the_machine_is_set_for_a_while_and_restored(machine: dict[str, str], tmp_path: Path) -> None:
    ran = run("set", f"{EXPIRE}=2902", "--for", "1s", "-d", NOWHERE, home=tmp_path)
    assert ran.status == 0, ran.err
    assert [line for line in ran.out.splitlines() if "→" in line] == [
        f"{EXPIRE}: {machine[path_of(EXPIRE)]} → 2902",
        f"{EXPIRE}: 2902 → {machine[path_of(EXPIRE)]}",
    ]
    assert kernel() == machine


READ_ONLY = 'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$@"'
IN_A_CONTAINER = ("unshare", "-m", "sh", "-c", READ_ONLY, "sh")
"""A mount namespace of our own, where /proc/sys is read-only."""


@pytest.mark.parametrize("apart", [(), pytest.param(IN_A_CONTAINER, marks=pytest.mark.root)], ids=["user", "root"])
def test_who_may_not_gets_the_commands_and_a_status_that_says_not_done(
    apart: tuple[str, ...], still: dict[str, str], tmp_path: Path
) -> None:
    if not apart and os.geteuid() == 0:
        pytest.skip("root may")
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be had here")
    ran = subprocess.run(
        [*apart, *PROGRAM, "set", f"{EXPIRE}=2903", f"{WRITEBACK}=503", "-d", NOWHERE],
        env=environment(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert ran.returncode == 6, ran.stderr
    assert ran.stdout.splitlines() == [f"sudo sysctl -w {EXPIRE}=2903", f"sudo sysctl -w {WRITEBACK}=503"]
    assert "cannot be written by this process: nothing was changed" in ran.stderr
    assert "run the sudo commands above" in ran.stderr
    assert kernel() == still
    assert not list(tmp_path.rglob("*.jsonl")), "what is not done is in no journal"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((f"{EXPIRE}=30s",), f"{EXPIRE} does not accept '30s'"),
        (("vm.dirty_bytes=1073741824", "vm.dirty_ratio=10"), "are alternatives"),
        ((f"{EXPIRE}=1", f"{EXPIRE}=2"), "is given twice"),
        ((f"{EXPIRE}=2900", "--persist", "--for", "5m"), "--persist and --for contradict each other"),
        ((f"{EXPIRE}=2900", "--scope", "load"), "applies to the whole machine"),
        (("max_wal_size=2GB", "--persist"), "--persist is for settings of the machine"),
        (("transparent_hugepage/enable=never",), "did you mean transparent_hugepage/enabled"),
        (("transparent_hugepage/enabled=never", "--persist"), "is not a sysctl"),
    ],
)
def test_words_that_make_no_sense_are_refused_before_anything_is_touched(
    words: tuple[str, ...], said: str, still: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if words[0].startswith("transparent_hugepage/enabled") and path_of("transparent_hugepage/enabled") not in still:
        pytest.skip("a kernel without transparent huge pages")
    with pytest.raises(UsageProblem) as problem:
        program()(args=["set", *words, "-d", NOWHERE], standalone_mode=False)
    assert said in str(problem.value)
    assert kernel() == still
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_name_that_the_server_does_not_have_may_be_one_of_the_machine(server: Throwaway, tmp_path: Path) -> None:
    ran = run("set", "vm.swapiness=1", "-d", conninfo(server), home=tmp_path)
    assert (ran.status, "did you mean vm.swappiness" in ran.err) == (2, True), ran.err


@pytest.mark.long
def test_a_custom_parameter_with_a_dot_is_the_servers(make_server: Callable[..., Throwaway], tmp_path: Path) -> None:
    server = make_server(18, shared_preload_libraries="auto_explain")
    ran = run("set", "auto_explain.log_min_duration=250ms", "-d", conninfo(server), home=tmp_path)
    assert ran.status == 0, ran.err
    assert ran.out.endswith("auto_explain.log_min_duration: -1 → 250ms\n")
    assert shown(server, "auto_explain.log_min_duration") == "250ms"


@pytest.mark.root
@pytest.mark.long
def test_a_set_of_which_the_server_refuses_its_half_leaves_the_machine_as_it_was(
    machine: dict[str, str], server: Throwaway, tmp_path: Path
) -> None:
    ran = run("set", f"{EXPIRE}=2904", "wal_compression=maybe", "-d", conninfo(server), home=tmp_path)
    assert (ran.status, "maybe" in ran.err) == (6, True), ran.err
    assert kernel() == machine
    assert run("revert", "--list", home=tmp_path).out == "no changes in force\n"


@pytest.mark.root
@pytest.mark.long
def test_what_is_to_survive_a_reboot_is_a_file_and_reset_gives_what_the_machine_starts_with(
    machine: dict[str, str], tmp_path: Path
) -> None:
    ran = run("set", f"{EXPIRE}=2905", f"{WRITEBACK}=501", "--persist", "-d", NOWHERE, home=tmp_path)
    assert ran.status == 0, ran.err
    assert (MACHINE / DROP_IN).read_text() == f"{EXPIRE} = 2905\n{WRITEBACK} = 501\n"
    ran = run("reset", EXPIRE, "-d", NOWHERE, home=tmp_path)
    assert ran.status == 0, ran.err
    assert f"{EXPIRE}: 2905 → " in ran.out
    assert (MACHINE / DROP_IN).read_text() == f"{WRITEBACK} = 501\n"
    ran = run("revert", "--machine", home=tmp_path)
    assert ran.status == 0, ran.err
    assert not (MACHINE / DROP_IN).exists()
    assert sysctl(WRITEBACK) == machine[path_of(WRITEBACK)]


@pytest.mark.root
@pytest.mark.long
def test_what_the_machine_starts_with_is_set_where_nobody_of_us_changed_it(
    machine: dict[str, str], tmp_path: Path
) -> None:
    ran = run("reset", EXPIRE, "-d", NOWHERE, home=tmp_path)
    assert ran.status == 0, ran.err
    start = sysctl(EXPIRE)
    (MACHINE / path_of(EXPIRE)).write_text(str(int(start) - 1))
    ran = run("reset", EXPIRE, "-d", NOWHERE, home=tmp_path)
    assert ran.out.endswith(f"{EXPIRE}: {int(start) - 1} → {start}\n")
    assert run("revert", "--machine", "--last", home=tmp_path).status == 0
    assert sysctl(EXPIRE) == str(int(start) - 1)


@pytest.mark.also_from_one_file
@pytest.mark.usefixtures("started_from")
@pytest.mark.root
@pytest.mark.long
def test_a_trial_of_both_halves_ends_with_a_signal_and_with_a_kill(
    machine: dict[str, str], fresh_server: Throwaway, tmp_path: Path
) -> None:
    words = ("max_wal_size=3GB", f"{EXPIRE}=2906", "--for", "1h")
    for number in (signal.SIGTERM, signal.SIGKILL):
        with setting(fresh_server, tmp_path, *words) as process:
            until(lambda: shown(fresh_server, "max_wal_size") == "3GB")
            assert sysctl(EXPIRE) == "2906"
            process.send_signal(number)
            until(lambda: shown(fresh_server, "max_wal_size") == "1GB")
            until(lambda: kernel() == machine)
            process.wait(60)
    until(lambda: run("revert", "--list", home=tmp_path).out == "no changes in force\n")


@pytest.mark.also_from_one_file
@pytest.mark.usefixtures("started_from")
@pytest.mark.root
@pytest.mark.long
def test_the_machine_is_restored_after_a_kill_also_when_the_server_has_gone(
    machine: dict[str, str], fresh_server: Throwaway, tmp_path: Path
) -> None:
    with setting(fresh_server, tmp_path, "work_mem=64MB", f"{EXPIRE}=2907", "--for", "1h") as process:
        until(lambda: shown(fresh_server, "work_mem") == "64MB")
        set_id = re.findall(r"--set (\w+)", run("revert", "--list", home=tmp_path).out)[0]
        waiting = [each for each in psutil.Process(process.pid).children() if set_id in each.cmdline()]
        fresh_server.stop("immediate")
        process.kill()
        until(lambda: kernel() == machine)
        assert waiting, "they go on trying to reach the server"
        for each in waiting:
            each.kill()


@pytest.mark.root
@pytest.mark.long
def test_huge_pages_are_raised_before_the_parameter_that_needs_them_and_given_back_after_it(
    machine: dict[str, str], make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(18, shared_buffers="16MB", huge_pages="off")
    pool = pool_of("vm.nr_hugepages", MACHINE)
    if pool is None:
        pytest.skip("a kernel without huge pages")
    pages = str(pool.total + 40)
    ran = run("set", "huge_pages=on", f"vm.nr_hugepages={pages}", "-d", conninfo(server), home=tmp_path)
    if sysctl("vm.nr_hugepages") != pages:
        pytest.skip(f"no room for huge pages here: {ran.out} {ran.err}")
    assert ran.out.index("sysctl -w vm.nr_hugepages") < ran.out.index("ALTER SYSTEM")
    words = ("set", "huge_pages=off", f"vm.nr_hugepages={pool.total}", "--dry-run", "-d", conninfo(server))
    ran = run(*words, home=tmp_path)
    assert ran.out.index("sysctl -w vm.nr_hugepages") > ran.out.index("ALTER SYSTEM"), ran.out
    ran = run("revert", "--all", "-d", conninfo(server), home=tmp_path)
    assert ran.out.endswith("2 changes reverted\n"), ran.out + ran.err
    assert kernel() == machine


@pytest.mark.root
@pytest.mark.long
def test_a_server_is_restarted_into_huge_pages_and_both_it_and_the_kernel_are_restored(
    machine: dict[str, str], make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    before = pool_of("vm.nr_hugepages", MACHINE)
    if before is None:
        pytest.skip("a kernel without huge pages")
    with by_pg_ctl(make_server(18, shared_buffers="16MB", huge_pages="off")) as server:
        target, files = conninfo(server), auto_conf_of(server)
        need = int(shown(server, "shared_memory_size_in_huge_pages"))
        pages = before.total + need
        words = ("set", "huge_pages=on", f"vm.nr_hugepages={pages}", "--restart", "--yes", "-d", target)
        ran = run(*words, home=tmp_path, timeout_s=180)
        if sysctl("vm.nr_hugepages") != str(pages) or "did not come up" in ran.err:
            pytest.skip(f"no room for huge pages here, or another server took them: {ran.out} {ran.err}")
        assert ran.status == 0, ran.err
        assert (shown(server, "huge_pages"), shown(server, "huge_pages_status")) == ("on", "on")
        smaps = Path(
            f"/proc/{(Path(str(server.data_dir)) / 'postmaster.pid').read_text().split()[0]}/smaps"
        ).read_text()
        assert re.search(r"^(Shared|Private)_Hugetlb: +[1-9]", smaps, re.MULTILINE), "it lives in them"
        ran = run("revert", "--last", "--restart", "-d", target, home=tmp_path, timeout_s=180)
        assert ran.status == 0, ran.err
        assert (shown(server, "huge_pages"), shown(server, "huge_pages_status")) == ("off", "off")
        assert auto_conf_of(server) == files
        assert kernel() == machine


@pytest.mark.root
@pytest.mark.parametrize("gets_larger", [False, True])
def test_a_server_that_takes_huge_pages_where_there_are_any_has_those_of_its_values(
    machine: dict[str, str], make_server: Callable[..., Throwaway], tmp_path: Path, gets_larger: bool
) -> None:
    before = pool_of("vm.nr_hugepages", MACHINE)
    if before is None or before.total:
        pytest.skip("a kernel without huge pages, or with pages of its own")
    made = make_server(18, shared_buffers="16MB", huge_pages="off")
    need = int(shown(made, "shared_memory_size_in_huge_pages"))
    first, second = (0, need) if gets_larger else (need, 0)
    (MACHINE / NR_HUGEPAGES).write_text(str(first))

    def has_pages() -> bool:
        return shown(server, "huge_pages_status") == "on"

    with by_pg_ctl(made, huge_pages="try") as server:
        words = ("set", "max_connections=66", f"vm.nr_hugepages={second}", "--restart", "--yes", "-d", conninfo(server))
        had_pages = has_pages()
        ran = run(*words, home=tmp_path, timeout_s=180)
        assert (ran.status, shown(server, "max_connections")) == (0, "66"), ran.err
        taken = had_pages or has_pages()
        assert gets_larger or not has_pages(), ran.out + ran.err
        run_pg_ctl(server, "stop", "-m", "fast")
        ran = run("revert", "--all", "--yes", "-d", conninfo(server), home=tmp_path, timeout_s=180)
        assert (ran.status, shown(server, "max_connections")) == (0, "100"), ran.err
        assert sysctl("vm.nr_hugepages") == str(first)
        assert not gets_larger or not has_pages()
        if not (taken and has_pages() is had_pages):
            pytest.skip("no room for huge pages here, or another server took them")
