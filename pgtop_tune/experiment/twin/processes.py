"""The processes of a server of ours: bound to CPUs, and the CPU time they took.

Source: proc_pid_stat(5), proc_tid_children(5), sched_setaffinity(2): children inherit the CPUs of their parent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pgtop_tune.host.process_files import parse_thread
from pgtop_tune.model.host import ThreadCounters

_PROC: Final = Path("/proc")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_TICK_MS: Final = 1000.0 / TICKS_PER_S
_UTIME: Final = 11
"""Fields 14 to 17 of proc_pid_stat(5), counted after the name: user and system, own and of collected children."""
_ROUNDS: Final = 2
"""A child that is forked while we look is bound in the next one."""


def tree(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    try:
        tasks = os.listdir(_PROC / str(pid) / "task")
        children = [(_PROC / str(pid) / "task" / task / "children").read_text().split() for task in tasks]
    except OSError:
        return
    for child in (int(word) for words in children for word in words):
        yield from tree(child)


def bind(pids: Iterable[int], cpus: Sequence[int]) -> None:
    """Lets processes, their threads and what descends from them run on these CPUs only.

    Raises:
        PermissionError: They are another user's.
    """
    roots = tuple(pids)
    for _ in range(_ROUNDS):
        for pid in (each for root in roots for each in tree(root)):
            for task in tasks_of(pid):
                try:
                    os.sched_setaffinity(task, cpus)
                except ProcessLookupError:
                    continue


def cpu_ms(pid: int) -> float:
    """CPU time of a server since its start, ended children included."""
    ticks = 0
    for each in tree(pid):
        try:
            fields = (_PROC / str(each) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        # Children that ended are in their parent's figures, and only the postmaster has any.
        ticks += sum(map(int, fields[_UTIME : _UTIME + (4 if each == pid else 2)]))
    return ticks * _TICK_MS


def threads(pid: int) -> dict[int, ThreadCounters]:
    """Thread id → its counters; those that have ended are left out."""
    found = {}
    for task in tasks_of(pid):
        directory = _PROC / str(pid) / "task" / str(task)
        try:
            thread = parse_thread(pid, (directory / "stat").read_bytes(), (directory / "schedstat").read_bytes())
        except (OSError, ValueError):
            continue
        found[thread.tid] = thread
    return found


def tasks_of(pid: int) -> tuple[int, ...]:
    """Thread ids of a process; none once it has ended."""
    try:
        return tuple(map(int, os.listdir(_PROC / str(pid) / "task")))
    except OSError:
        return ()


def core_of(cpu: int) -> tuple[int, ...]:
    """Hardware threads of the core that a CPU is of; the CPU itself where the kernel does not say."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        words = path.read_text().strip().split(",")
    except OSError:
        return (cpu,)
    return tuple(
        number for word in words for number in range(int(word.partition("-")[0]), int(word.rpartition("-")[2]) + 1)
    )
