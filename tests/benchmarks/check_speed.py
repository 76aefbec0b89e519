"""How long `check` takes on a server with many tables, beside psql that connects and asks one thing.

    python tests/benchmarks/check_speed.py --tables 1000
    python tests/benchmarks/check_speed.py --tables 50000

prints the wall time, CPU of the program and of the server for each run, and the best run as a multiple of psql's best.
Figures of a shared machine are to be read, not asserted.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pgtop_tune.cluster.binaries import find_binaries
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo

_DATABASE = "many_tables"
_AT_ONCE = 500
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_TABLE = "CREATE TABLE t%s (id serial PRIMARY KEY, other int REFERENCES t%s, filler int)"


@dataclass(frozen=True)
class Run:
    """Seconds of one run."""

    wall_s: float
    client_s: float
    server_s: float

    def __str__(self) -> str:
        return f"{self.wall_s:6.2f} s, CPU {self.client_s:5.2f} s here and {self.server_s:5.2f} s in the server"


def fill(server: Throwaway, tables: int) -> None:
    """A database with so many tables, each with a key, a sequence and a foreign key without an index."""
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {_DATABASE}")
    with psycopg.connect(conninfo(server, _DATABASE), autocommit=True) as connection:
        for first in range(0, tables, _AT_ONCE):
            last = min(first + _AT_ONCE, tables) - 1
            connection.execute(
                f"DO $$BEGIN FOR i IN {first}..{last} LOOP"
                f" EXECUTE format('{_TABLE}', i, greatest(i - 1, 0)); END LOOP; END$$"
            )
        connection.execute("ANALYZE")


def server_s(server: Throwaway) -> float:
    """CPU of the server's processes that have ended. Source: cutime and cstime of /proc/PID/stat."""
    numbers = Path(f"/proc/{server.postmaster_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[13]) + int(numbers[14])) / _TICKS_PER_S


def timed(server: Throwaway, command: list[str]) -> Run:
    """One run of a command, its output thrown away."""
    before, server_before, began = resource.getrusage(resource.RUSAGE_CHILDREN), server_s(server), time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    client_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    time.sleep(0.2)
    return Run(wall_s, client_s, server_s(server) - server_before)


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="How long the check takes.")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--times", type=int, default=5)
    chosen = parser.parse_args()
    settings = {"fsync": "off", "shared_buffers": "128MB", "max_locks_per_transaction": "1024"}
    binaries = find_binaries()
    with Throwaway.create(binaries, settings=settings) as server:
        fill(server, chosen.tables)
        target = conninfo(server, _DATABASE)
        commands = {
            "psql": [str(binaries.bin_dir / "psql"), "-XAtc", "SELECT count(*) FROM pg_stat_activity", target],
            "check": [sys.executable, "-m", "pgtop_tune", "check", target],
        }
        best: dict[str, Run] = {}
        for name, command in commands.items():
            timed(server, command)
            runs = [timed(server, command) for _ in range(chosen.times)]
            for run in runs:
                print(f"{name:6}{run}")
            best[name] = min(runs, key=lambda run: run.wall_s)
    ratio = best["check"].wall_s / best["psql"].wall_s
    print(f"{chosen.tables} tables: check {best['check'].wall_s:.2f} s, {ratio:.0f} × psql; half a second is a wait")
    return 0


if __name__ == "__main__":
    sys.exit(main())
