"""Whether strict accounting of memory would leave room to fork. Source: mm/overcommit-accounting.rst; mm/util.c.

With vm.overcommit_memory=2 nothing new starts once Committed_AS has reached CommitLimit: no shell, no ssh, no backend.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pgtop_tune.changes.machine.huge_page_pool import pool_of
from pgtop_tune.errors import HostProblem
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.memory_files import HugePagePools, parse_meminfo
from pgtop_tune.host.system_settings import live_value, path_of
from pgtop_tune.units import MB, about

_ACCOUNTING: Final = "vm.overcommit_memory"
_RATIO: Final = "vm.overcommit_ratio"
_KILOBYTES: Final = "vm.overcommit_kbytes"
_STRICT: Final = 2
_LEAST_ROOM: Final = 256 * MB
"""For a shell and a login while nothing else ends; the kernel keeps admin_reserve_kbytes for root besides."""


def check_room_to_fork(root: Path, name: str, value: str) -> None:
    """Makes sure that a setting leaves CommitLimit above what is committed, where strict accounting is in force.

    Raises:
        HostProblem: It does not; nothing was changed.
    """
    pool = pool_of(name, root)
    if name not in (_ACCOUNTING, _RATIO, _KILOBYTES) and pool is None:
        return
    try:
        memory = parse_meminfo(0.0, read_once(root / "proc/meminfo"))
        live = {each: int(live_value(path_of(each), root)) for each in (_ACCOUNTING, _RATIO, _KILOBYTES)}
        pools = HugePagePools(root).read(memory.huge_pages)
    except (OSError, ValueError):
        return
    wanted, committed = {**live, name: int(value)} | ({_KILOBYTES: 0} if name == _RATIO else {}), memory.committed_bytes
    if committed is None or wanted[_ACCOUNTING] != _STRICT:
        return
    usable = memory.total_bytes - sum(each.total * each.page_bytes for each in pools)
    more = 0 if pool is None else (int(value) - pool.total) * pool.page_bytes
    limit, now = (
        (1024 * values[_KILOBYTES] or size * values[_RATIO] / 100) + (memory.swap_total_bytes or 0)
        for values, size in ((wanted, usable - more), (live, usable))
    )
    helps = live[_ACCOUNTING] == _STRICT and limit >= now
    if helps or committed + _LEAST_ROOM <= limit:
        return
    raise HostProblem(
        f"{name}={value}: CommitLimit would be {about(limit)}, and {about(committed)} are committed: no "
        "program could start",
        "free memory first, or restart the server with less",
    )
