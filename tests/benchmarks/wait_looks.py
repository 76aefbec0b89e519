"""What a look at waits costs the server and us, with transactions that are followed one by one and without.

    python tests/benchmarks/wait_looks.py --sessions 300
    python tests/benchmarks/wait_looks.py --sessions 300 --beside /tmp/waits_of_before.sql

All sessions have been in a transaction for long, the worst case: every one of them is followed, or one in so many. The
statement of another version, without parameters, can be measured beside it. Figures of a shared machine are to be read,
not asserted; the columns of one run compare.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

import asyncpg
import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pgtop_tune.cluster.binaries import find_binaries
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.queries import sql
from tests.support.servers import conninfo

_LOOKS = 1000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def server_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def measure(target: str, ways: dict[str, tuple[str, tuple[object, ...]]]) -> None:
    """Takes turns: each way a hundred looks, ten times over."""
    at = psycopg.conninfo.conninfo_to_dict(target)
    connection = await asyncpg.connect(
        host=str(at["host"]), port=int(str(at["port"])), user=str(at["user"]), database=str(at["dbname"]),
        password=str(at["password"]) if "password" in at else None,
    )  # fmt: skip
    pid = connection.get_server_pid()
    spent = {name: [0.0, 0.0, 0] for name in ways}
    for _ in range(_LOOKS // 100):
        for name, (text, arguments) in ways.items():
            there, here = server_s(pid), time.process_time()
            rows = 0
            for _ in range(100):
                rows = len(await connection.fetch(text, *arguments))
            spent[name][0] += server_s(pid) - there
            spent[name][1] += time.process_time() - here
            spent[name][2] = rows
    for name, (there, here, rows) in spent.items():
        print(
            f"{name:32} server {1e6 * there / _LOOKS:6.0f} us, here {1e6 * here / _LOOKS:6.0f} us a look, {rows} rows"
        )
    await connection.close()


def main() -> None:
    """Makes a server with the sessions and measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--beside", type=Path)
    chosen = parser.parse_args()
    binaries = find_binaries()
    with Throwaway.create(binaries, settings={"max_connections": str(chosen.sessions + 20)}) as server:
        target = conninfo(server)
        others = [psycopg.connect(target) for _ in range(chosen.sessions)]
        for other in others:
            other.execute("SELECT 1")
        time.sleep(1.2)
        text = sql("waits", binaries.major)
        ways: dict[str, tuple[str, tuple[object, ...]]] = {
            "no transaction followed": (text, (10**9, 1)),
            "one in 8 followed": (text, (50, 8)),
            "all followed": (text, (50, 1)),
        }
        if chosen.beside is not None:
            ways = {"beside": (chosen.beside.read_text(), ()), **ways}
        asyncio.run(measure(target, ways))
        for other in others:
            other.close()


if __name__ == "__main__":
    main()
