"""The programs beside the server that take most CPU time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.host.local import LocalHost, OtherPrograms
from pgtop_tune.model.host import CpuSample, OtherProgram, ProcessCounters


def found_by(programs: OtherPrograms, besides: set[int], wanted: int) -> tuple[OtherProgram, ...]:
    """What was found once the wanted one was, or in the end."""
    deadline, found = time.monotonic() + 20.0, ()
    while time.monotonic() < deadline and wanted not in [program.pid for program in found]:
        time.sleep(0.1)
        found = programs.latest(besides)
    return found


def test_a_program_in_a_loop_is_named_with_its_share() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
        try:
            others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {loop.pid}
            found = found_by(OtherPrograms(time.monotonic, every_s=0.3), others, loop.pid)
            # Tests beside this one start programs as well.
            (program,) = [each for each in found if each.pid == loop.pid]
            assert program.name.startswith("python")
            # Of a busy machine it has a small share.
            assert program.cpu_percent > 0.0
        finally:
            loop.kill()


def test_the_server_and_those_that_have_ended_are_no_others(tmp_path: Path) -> None:
    clock = iter(float(second) for second in range(100))
    programs = OtherPrograms(lambda: next(clock), str(tmp_path), every_s=0.0)
    tail = " ".join(["0"] * 30)

    def stat(pid: int, name: str, ticks: int, start: int = 5) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        text = f"{pid} ({name}) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {start} {tail}"
        (tmp_path / str(pid) / "stat").write_text(text)

    for look, ticks in enumerate((0, 100_000)):
        stat(1, "busy (one)", ticks)
        stat(2, "postgres", ticks)
        stat(3, "another", ticks, start=look)
        stat(4, "idle", 0)
        for pid in (5, 6, 7):
            stat(pid, "cc1", ticks // 2)
        programs._besides = frozenset({2})
        found = programs._look()
    assert [(program.pid, program.name, program.processes) for program in found] == [
        (7, "cc1", 3),
        (1, "busy (one)", 1),
    ]
    # "python 0.2, python 0.1" of 1.7 CPUs sent nobody to what took them.
    assert (found[0].cpus, found[0].cpu_percent) == (1.5 * found[1].cpus, found[1].cpu_percent / 2)


@pytest.mark.parametrize(("ours", "asked"), [(0.0, True), (0.45, False)])
def test_they_are_looked_for_only_while_they_take_a_good_part_of_the_cpus(ours: float, asked: bool) -> None:
    host = LocalHost(time.monotonic)
    cpu = host.sample([]).cpu
    assert isinstance(cpu, CpuSample)
    second = os.sysconf("SC_CLK_TCK") * len(cpu.cores)
    process = ProcessCounters(
        pid=1, start_ticks=1, state="R", user_ticks=0, system_ticks=0, rss_bytes=0, delay_ticks=None
    )
    host._cpu = cpu
    host._others_take_cpu([process])
    host._cpu = replace(
        cpu, at_s=cpu.at_s + 1.0, total=replace(cpu.total, user_ticks=cpu.total.user_ticks + second // 2)
    )
    process = replace(process, user_ticks=int(ours * second))
    assert host._others_take_cpu([process]) is asked
    for rest_s, still in ((3.0, asked), (7.0, False)):
        host._cpu = replace(host._cpu, at_s=cpu.at_s + rest_s)
        assert host._others_take_cpu([process]) is still, "names do not come and go with the load of a second"
