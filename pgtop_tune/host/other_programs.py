"""The programs that take most CPU time beside the server, pgbench and ourselves.

All processes of the machine have to be looked through for them, so that happens now and then, in a thread, and only
while such programs take CPU time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from typing import Final

from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.mounts import Background
from pgtop_tune.host.process_files import cpu_ticks, parse_lineage
from pgtop_tune.model.host import OtherProgram

_EVERY_S: Final = 5.0
_MOST: Final = 2
_LEAST_PERCENT: Final = 10.0
_STALE_S: Final = 3.0 * _EVERY_S
"""After a longer pause two looks say nothing of now."""
_Look = tuple[float, dict[tuple[int, int], tuple[str, int]]]
"""Moment, and by pid and start ticks the name and the CPU ticks."""


class OtherPrograms:
    """Looks through all processes now and then.

    Args:
        clock: Seconds on the session's monotonic clock.
        proc: The /proc directory.
        every_s: Time between two looks.
    """

    def __init__(self, clock: Callable[[], float], proc: str = "/proc", every_s: float = _EVERY_S) -> None:
        self._clock = clock
        self._proc = proc
        self._besides: frozenset[int] = frozenset()
        self._before: _Look | None = None
        self._looks = Background(self._look, every_s, clock)

    def latest(self, besides: Collection[int]) -> tuple[OtherProgram, ...]:
        """At most two, the busiest first; none before the second look.

        Args:
            besides: Processes that are no other programs.
        """
        self._besides = frozenset(besides)
        return self._looks.latest() or ()

    def _look(self) -> tuple[OtherProgram, ...]:
        now = self._read()
        before, self._before = self._before, now
        if before is None or not 0.0 < (seconds := now[0] - before[0]) <= _STALE_S:
            return ()
        scale = 100.0 / (os.sysconf("SC_CLK_TCK") * seconds)
        found = [
            OtherProgram(pid=pid, name=name, cpu_percent=round((ticks - before[1][pid, start][1]) * scale, 1))
            for (pid, start), (name, ticks) in now[1].items()
            if (pid, start) in before[1]
        ]
        found.sort(key=lambda program: -program.cpu_percent)
        return tuple(program for program in found[:_MOST] if program.cpu_percent >= _LEAST_PERCENT)

    def _read(self) -> _Look:
        at_s = self._clock()
        seen: dict[tuple[int, int], tuple[str, int]] = {}
        with contextlib.suppress(OSError):
            for pid in {int(name) for name in os.listdir(self._proc) if name.isdigit()} - self._besides:
                # It may have ended since.
                with contextlib.suppress(OSError, ValueError):
                    stat = read_once(f"{self._proc}/{pid}/stat")
                    who = parse_lineage(stat)
                    seen[pid, who.start_ticks] = who.name, cpu_ticks(stat)
        return at_s, seen
