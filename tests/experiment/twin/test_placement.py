"""Halves by control groups where we may make them, by affinity where we may not; nothing of them stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtop_tune.experiment.twin.half_cpu import HalfCpu
from pgtop_tune.experiment.twin.placement import GroupParent, Placement, parent_of
from pgtop_tune.host.mounts import Mount
from pgtop_tune.process.process_key import own_key
from tests.cli.test_set import until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child of its own."""
    process = subprocess.Popen(["/bin/sh", "-c", "sleep 300 & echo; wait"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    for pid in (*_children(process.pid), process.pid):
        os.kill(pid, 9)
    process.wait()
    process.stdout.close()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def here() -> Placement:
    """Skips where no groups can be made on this machine."""
    placement = Placement.here()
    if not placement.groups:
        pytest.skip(placement.why)
    return placement


def cpus() -> list[int]:
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        pytest.skip("one CPU")
    return found


def test_a_group_holds_a_process_and_its_children_and_moves_them_at_once(sleeper: subprocess.Popen[bytes]) -> None:
    placement, (first, second, *_) = here(), cpus()
    placement.enter(0, [sleeper.pid])
    (child,) = _children(sleeper.pid)
    for cpu in (first, second):
        placement.give(0, [cpu])
        placement.give(1, [first + second - cpu])
        assert {os.sched_getaffinity(pid) == {cpu} for pid in (sleeper.pid, child)} == {True}
    assert placement.words.startswith("by control groups")
    groups = placement.groups
    # As after a process that cannot be moved.
    placement._give_up("try")
    assert os.sched_getaffinity(sleeper.pid) == set(cpus())
    assert not any(group.exists() for group in groups)
    placement.give(0, [first])
    assert os.sched_getaffinity(child) == {first}
    assert placement.words == "by CPU affinity (try)"


def test_groups_of_a_program_that_was_killed_go_with_the_next_start() -> None:
    placement = here()
    parent = placement.groups[0].parent
    key = own_key()
    left = parent / f"pgtop-tune-twin-{key.pid}-{key.start_ticks + 1}-1"
    left.mkdir()
    again = Placement.here()
    assert not left.exists()
    # Both are of this process, which lives.
    assert all(group.exists() for group in placement.groups)
    again.close()
    placement.close()
    assert not any(group.exists() for group in placement.groups)


def test_without_groups_processes_are_bound_one_by_one(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """A directory of another file system is no control group."""
    refused = Placement(GroupParent(tmp_path / "nothing", 2))
    assert "control groups cannot be made" in refused.why
    refused.enter(0, [sleeper.pid])
    refused.give(0, [cpus()[1]])
    assert [os.sched_getaffinity(pid) for pid in (sleeper.pid, *_children(sleeper.pid))] == [{cpus()[1]}] * 2
    refused.close()


@pytest.mark.parametrize(
    ("handed_down", "found"),
    [
        ({"": "cpuset io memory", "user.slice": "memory", "user.slice/own": ""}, ""),
        ({"": "cpuset", "user.slice": "cpuset cpu io"}, "user.slice"),
        ({"": "memory pids"}, None),
    ],
)
def test_the_nearest_group_that_hands_cpuset_down_is_taken(
    tmp_path: Path, handed_down: dict[str, str], found: str | None
) -> None:
    for name, controllers in handed_down.items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "cgroup.subtree_control").write_text(f"{controllers}\n")
    mounts = [Mount(str(tmp_path), "cgroup2", "cgroup2", ())]
    parent = parent_of(mounts, {"": "/user.slice/own"})
    assert parent == (None if found is None else GroupParent(tmp_path / found, 2))
    assert parent_of([], {"": "/"}) is None


def test_cpu_time_is_of_the_copy_that_had_the_cpu() -> None:
    busy, idle = cpus()[:2]
    burner = subprocess.Popen(["/bin/sh", "-c", f"taskset -p -c {busy} $$ >/dev/null; while :; do :; done"])
    try:
        until(lambda: os.sched_getaffinity(burner.pid) == {busy})
        half = HalfCpu()
        half.look([])

        def seen(copy: int) -> bool:
            half.look([[busy], [idle]] if copy == 0 else [[idle], [busy]])
            return half.busy_ms[copy] >= 300.0

        until(lambda: seen(0))
        first = half.busy_ms[0]
        until(lambda: seen(1))
        assert half.busy_ms[0] >= first
        assert half.cpus >= 2
    finally:
        burner.kill()
        burner.wait()
