"""How often a directory's device makes a page of WAL durable, by the server's own pg_test_fsync.

It is handed a file without a name (O_TMPFILE): nobody sees it, and it is gone when we are, however that happens.
Source: PostgreSQL documentation, pg_test_fsync.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pgtop_tune.host.flush_meter import METHODS, unnamed_file
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.process.guarded_program import start_guarded_async

PROGRAM: Final = "pg_test_fsync"
LEAST_S: Final = float(len(METHODS))
"""A second for each method is the shortest it knows."""
_LINE: Final = re.compile(r"\s*(\w+)\s+([0-9.]+) ops/sec")
_GRACE_S: Final = 1.0


async def program_flushes(program: Path, directory: Path, limit_s: float) -> Mapping[str, float] | Unavailable:
    """Flushes a second by wal_sync_method, each after one write of 8 kB.

    Args:
        program: pg_test_fsync.
        directory: pg_wal.
        limit_s: It is ended then; methods that it has not come to are left out. `LEAST_S` and a little are needed.

    Returns:
        What was measured; Unavailable where nothing was: we may not write there, or it says something else.
    """
    file = unnamed_file(directory)
    if isinstance(file, Unavailable):
        return file
    try:
        running = await start_guarded_async(
            [str(program), "-s", "1", "-f", f"/proc/self/fd/{file}"],
            signal="TERM",
            grace_s=_GRACE_S,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            pass_fds=(file,),
        )
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{program}: {problem.strerror}")
    finally:
        os.close(file)
    found: dict[str, float] = {}
    try:
        async with asyncio.timeout(limit_s):
            async for line in running.stdout:
                found |= one_method(line.decode("utf-8", "replace"))
                if len(found) == len(METHODS):
                    break
    except (TimeoutError, ValueError):
        pass
    finally:
        await running.stop()
    return found or Unavailable(Reason.FAILED, f"{program} says nothing we know within {limit_s:.0f} s")


def one_method(line: str) -> Mapping[str, float]:
    """A line "fdatasync  1940.123 ops/sec  515 usecs/op" as method and number; empty for every other one."""
    found = _LINE.match(line)
    if found is None or found[1] not in METHODS or not float(found[2]):
        return {}
    return {found[1]: float(found[2])}
