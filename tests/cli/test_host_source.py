"""--host-source through the real command line: recorded and replayed, and in a mount namespace that hides /proc."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.binaries import WHEEL
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import FileSystemSample, HostFacts, HostSample, ProcessSample
from pgtop_tune.recording.reader import RecordingReader
from tests.cli.runs import PROGRAM, ROOT, Ran, environment, run
from tests.support.servers import Servers, conninfo


def recorded(path: Path) -> list[Frame]:
    reader = RecordingReader(path)
    frames = [frame for _, frame in reader.frames()]
    reader.close()
    return frames


def test_a_recording_by_psutil_has_its_figures_and_the_reasons_for_the_others(
    server: Throwaway, tmp_path: Path
) -> None:
    output = tmp_path / "a.jsonl"
    words = ("record", "-q", "-o", str(output), "--seconds", "4", "--host-source", "psutil", conninfo(server))
    ran = run(*words, home=tmp_path)
    assert ran.status == 0, ran.err
    frames = recorded(output)
    host = frames[-1].host
    assert isinstance(host, HostSample)
    assert isinstance(host.facts, HostFacts)
    assert (host.facts.source, host.facts.is_of_server) == ("psutil", False)
    assert str(untold(frames[-1], metrics.DISK_QUEUE.id)) == "psutil does not report requests in progress"
    assert str(host.pressure).startswith("psutil does not report pressure")
    interval = Interval(frames)
    for figure in (metrics.CPU_BUSY, metrics.CONTEXT_SWITCHES, metrics.LOAD_1M, metrics.MEMORY_USED, metrics.SWAP_IN):
        assert figure(interval) is not None, figure.id
    assert set(metrics.CORE_BUSY(interval)) == {f"cpu{number}" for number in range(host.facts.cpu_count)}
    assert isinstance(host.processes, ProcessSample)
    assert server.postmaster_pid in {process.pid for process in host.processes.processes}
    ran = run("diff", str(output), str(output), home=tmp_path)
    assert ran.out == "no parameter differs\n"
    assert "settings of the machine are not compared: psutil does not report" in ran.err
    ran = run("export", str(output), "--format", "csv", home=tmp_path)
    assert ran.status == 0, ran.err
    assert "host.cpu.busy" in ran.out


def test_the_usual_start_imports_no_psutil(server: Throwaway, tmp_path: Path) -> None:
    for source, imported in (("auto", False), ("psutil", True)):
        ran = subprocess.run(
            [sys.executable, "-X", "importtime", *PROGRAM[1:], "record", "-q", "-o", str(tmp_path / source),
             "--seconds", "1", "--host-source", source, conninfo(server)],
            capture_output=True, text=True, env=environment(tmp_path), cwd=ROOT, check=True,
        )  # fmt: skip
        assert ("| psutil" in ran.stderr) is imported, source


# Without /proc: psutil itself reads it on Linux, so little is left, and the rest says why.

_HIDE = 'mount --make-rprivate / && mount --bind "$1" /proc && shift && exec "$@"'


@pytest.fixture
def watcher(server: Throwaway) -> Iterator[str]:
    """A role that may not read the server's files."""
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("CREATE ROLE host_watcher LOGIN IN ROLE pg_monitor")
        # A load of others has its processes looked for among all there are.
        with psycopg.connect(conninfo(server), application_name="pgbench"):
            yield f"{conninfo(server)} user=host_watcher"
        admin.execute("DROP ROLE host_watcher")


def hidden(tmp_path: Path, *words: str) -> Ran:
    """Runs the program where /proc is an empty directory."""
    empty = tmp_path / "empty"
    empty.mkdir(exist_ok=True)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", _HIDE, "sh", str(empty), *PROGRAM, *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, env=environment(tmp_path), cwd=ROOT,
        check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.root
@pytest.mark.parametrize("source", ["auto", "psutil"])
def test_without_proc_space_is_seen_and_the_rest_says_why(
    server: Throwaway, watcher: str, tmp_path: Path, source: str
) -> None:
    output = tmp_path / "a.jsonl"
    ran = hidden(tmp_path, "record", "-q", "-o", str(output), "--seconds", "3", "--host-source", source, watcher)
    assert ran.status == 0, ran.err
    assert re.fullmatch(r"recorded .*\n", ran.err), "no warning of psutil's on the terminal"
    host = recorded(output)[-1].host
    assert isinstance(host, HostSample)
    assert isinstance(host.facts, HostFacts)
    assert (host.facts.source, host.facts.cpu_count, host.facts.boot_id) == ("psutil", os.cpu_count(), "")
    assert host.facts.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    assert isinstance(host.file_systems, FileSystemSample)
    assert {role for row in host.file_systems.file_systems for role in row.roles} >= {"data", "wal"}
    for name, words in {
        "cpu": "psutil cannot read CPU times here: no /proc/stat",
        "memory": "psutil cannot read memory here: no /proc/meminfo",
        "network": "psutil cannot read network interfaces here: no /proc/net/dev",
        "processes": "psutil cannot read processes here: even pgtop-tune's own process was not found",
    }.items():
        section = getattr(host, name)
        assert isinstance(section, Unavailable), name
        assert (section.reason, str(section)) == (Reason.NOT_SUPPORTED, words)


@pytest.mark.root
def test_without_proc_a_server_that_hands_out_its_own_is_seen_through_it(server: Throwaway, tmp_path: Path) -> None:
    output = tmp_path / "a.jsonl"
    ran = hidden(tmp_path, "record", "-q", "-o", str(output), "--seconds", "3", conninfo(server))
    assert ran.status == 0, ran.err
    host = recorded(output)[-1].host
    assert isinstance(host, HostSample)
    assert isinstance(host.facts, HostFacts)
    assert host.facts.is_of_server


@pytest.mark.root
def test_without_proc_checks_of_the_machine_are_unknown_with_the_reason(
    server: Throwaway, watcher: str, tmp_path: Path
) -> None:
    words = ("--fail-on", "never", "--select", "OS,CPU,HUGE,MEM", "--format", "json")
    ran = hidden(tmp_path, "check", *words, "-d", watcher)
    assert ran.status == 0, ran.err
    report = json.loads(ran.out)
    unknown = {each["check"]: each["reason"] for each in report["unknown"]}
    judged = [*unknown, *report["passed"]]
    of_machine = [id_ for id_ in judged if id_.startswith(("OS-", "CPU-")) or id_ in ("MEM-01", "HUGE-03", "HUGE-04")]
    assert len(of_machine) >= 14
    for id_ in of_machine:
        assert "psutil" in unknown[id_]


@pytest.mark.root
def test_without_proc_parameters_are_changed_confirmed_and_reverted(server: Throwaway, tmp_path: Path) -> None:
    place = ("-d", conninfo(server))
    assert hidden(tmp_path, "set", "work_mem=8MB", *place).status == 0
    assert hidden(tmp_path, "set", "work_mem=9MB", "--for", "1s", *place).status == 0
    with psycopg.connect(conninfo(server)) as session:
        assert session.execute("SHOW work_mem").fetchone() == ("8MB",)
    ran = hidden(tmp_path, "revert", "--all", *place)
    assert ran.status == 0, ran.err
    ran = hidden(tmp_path, "advise", "--apply", "--dry-run", "--yes", *place)
    assert "psutil does not report settings of the operating system" in ran.err or "another machine" in ran.err


@pytest.mark.root
@pytest.mark.parametrize("words", [("record", "-q", "-o", "a.jsonl", "--seconds", "1"), ("check",), ("bench", "run")])
def test_proc_is_refused_where_it_is_hidden_and_nothing_else_is_taken(
    server: Throwaway, tmp_path: Path, words: tuple[str, ...]
) -> None:
    ran = hidden(tmp_path, *words, "--host-source", "proc", conninfo(server))
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        "pgtop-tune: --host-source proc: /proc/stat cannot be read here\n"
        "hint: use --host-source auto: it uses psutil, or the server's own /proc if the role may read it\n"
    )


@pytest.mark.root
def test_without_proc_the_kernel_is_not_blamed_for_a_missing_setting(server: Throwaway, tmp_path: Path) -> None:
    ran = hidden(tmp_path, "set", "vm.swappiness=10", "--dry-run", "-d", conninfo(server))
    assert ran.status != 0
    assert ran.err == "pgtop-tune: vm.swappiness: /proc/sys is hidden from this process, or not mounted\n"


@pytest.mark.root
def test_without_proc_the_wheel_says_why_its_programs_do_not_find_their_libraries(
    servers: Servers, server: Throwaway, tmp_path: Path
) -> None:
    binaries = servers.binaries(18)
    if binaries.origin != WHEEL:
        pytest.skip("no embedded wheel")
    why = "hint: programs find their libraries through /proc, which is hidden: "
    ran = hidden(tmp_path, "demo", "--pg-bin", str(binaries.bin_dir))
    assert ran.status == 1
    assert "initdb failed:" in ran.err
    assert ran.err.endswith(f"{why}pass the directory of an installed server's programs with --pg-bin\n")
    pgbench = binaries.bin_dir / "pgbench"
    ran = hidden(tmp_path, "bench", "init", "-s", "1", "--pgbench", str(pgbench), conninfo(server))
    assert ran.err.endswith(f"{why}pass an installed pgbench with --pgbench\n")
