"""The whole program on a busy server, beside a bare Textual program and pg_activity: CPU, bytes, first data, memory.

    python tests/benchmarks/live_screen.py --connections 300 --seconds 30 --rounds 2

makes a throwaway server, keeps its sessions busy with pgbench at a limited rate, and runs the programs in turn, several
rounds, on one machine under one load. Not a test: figures of a shared machine are to be read, not asserted.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgtop_tune.cluster.binaries import find_binaries
from pgtop_tune.cluster.throwaway import Throwaway

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.pty_meter import Measurement, cpu_seconds, measure

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Contestant:
    """A program to be measured.

    Attributes:
        name: In the table.
        command: Program and arguments.
        until: What stands on its screen once there is data.
        application: Start of the application_name of its sessions; "" when it has none.
        press: Keys that turn to the page that is measured.
    """

    name: str
    command: tuple[str, ...]
    until: str
    application: str = ""
    press: str = ""


class ServerShare(threading.Thread):
    """CPU time that the server spends on a contestant's sessions.

    Args:
        cluster: The server.
        application: Start of the application_name.
        settle_s: When the first look is taken.
        seconds: When the last one is, a moment before.
    """

    def __init__(self, cluster: Throwaway, application: str, settle_s: float, seconds: float) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._application = application
        self._settle_s = settle_s
        self._seconds = seconds
        self.percent: float | None = None

    def run(self) -> None:
        """Looks twice."""
        time.sleep(self._settle_s)
        began = time.monotonic()
        first = self._cpu_s()
        time.sleep(max(0.5, self._seconds - self._settle_s - 1.0))
        last = self._cpu_s()
        both = first.keys() & last.keys()
        if both:
            self.percent = 100 * sum(last[pid] - first[pid] for pid in both) / (time.monotonic() - began)

    def _cpu_s(self) -> dict[int, float]:
        with connected(self._cluster) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE starts_with(application_name, %s)", (self._application,)
            ).fetchall()
        return {pid: cpu_seconds(pid) for (pid,) in rows}


@contextmanager
def connected(cluster: Throwaway) -> Iterator[psycopg.Connection[tuple[int]]]:
    """A session of the benchmark's own."""
    with psycopg.connect(
        host=str(cluster.socket_dir), port=cluster.port, user=cluster.user, dbname="postgres", autocommit=True
    ) as connection:
        yield connection


@contextmanager
def busy(cluster: Throwaway, connections: int, rate: float) -> Iterator[None]:
    """pgbench with so many clients and so many transactions a second, as long as the block lasts."""
    pgbench = str(cluster.binaries.program("pgbench"))
    at = ("-h", str(cluster.socket_dir), "-p", str(cluster.port), "-U", cluster.user, "postgres")
    environment = {**os.environ, **cluster.binaries.environment()}
    subprocess.run([pgbench, "-i", "-q", "-s", "10", *at], check=True, capture_output=True, env=environment)
    running = subprocess.Popen(
        [pgbench, "-n", "-c", str(connections), "-j", "2", "-R", str(rate), "-T", "86400", "-M", "prepared", *at],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        deadline = time.monotonic() + 60
        with connected(cluster) as connection:
            while connection.execute("SELECT count(*) FROM pg_stat_activity").fetchone() < (connections,):
                if running.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("pgbench did not get its sessions")
                time.sleep(0.2)
        yield
    finally:
        running.terminate()
        running.wait(30)


def contestants(cluster: Throwaway, work_dir: Path, names: Sequence[str], pages: Sequence[str]) -> list[Contestant]:
    """Those asked for that can be had here, and ours on each of the pages."""
    host = ("-h", str(cluster.socket_dir), "-p", str(cluster.port), "-U", cluster.user)
    ours = (sys.executable, "-m", "pgtop_tune.cli.app", "top", *host, "-d", "postgres")
    all_of_them = [
        Contestant("bare Textual", (sys.executable, str(_HERE / "bare_textual.py")), "ready"),
        Contestant("pgtop-tune", ours, r"sessions\s+\d+/", "pgtop-tune"),
        Contestant("pgtop-tune --plain", (*ours, "--plain"), r"sessions\s+\d+/", "pgtop-tune"),
    ]
    if "pg_activity" in names and (program := pg_activity(work_dir)):
        command = (program, *host, "-d", "postgres", "--refresh", "1")
        all_of_them.append(Contestant("pg_activity", command, r"Sessions: +\d+/", "pg_activity"))
    on_pages = [
        Contestant(f"pgtop-tune, page {key}", ours, r"sessions\s+\d+/", "pgtop-tune", press=key) for key in pages
    ]
    return [*(one for one in all_of_them if one.name in names), *on_pages]


def pg_activity(work_dir: Path) -> str:
    """The program, installed from PyPI into an environment of its own; "" when that cannot be done."""
    home = work_dir / "pg_activity"
    venv.create(home, with_pip=True)
    asked = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "pg_activity", "psycopg[binary]"]
    installed = subprocess.run(asked, capture_output=True, text=True, check=False)
    if installed.returncode != 0:
        print(f"pg_activity is left out: {installed.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return ""
    return str(home / "bin" / "pg_activity")


def table(results: dict[str, list[tuple[Measurement, float | None]]]) -> str:
    """Medians over the rounds; behind each figure its multiple of the bare Textual program's."""
    figures: dict[str, list[float | None]] = {}
    for name, rounds in results.items():
        columns = [
            [
                one.cpu_percent,
                server,
                None if one.bytes_per_s is None else one.bytes_per_s / 1000,
                one.first_byte_s,
                one.first_paint_s,
                one.first_paint_cpu_s,
                one.peak_rss_mb,
            ]
            for one, server in rounds
        ]
        figures[name] = [_median(column) for column in zip(*columns, strict=True)]
    bare = figures.get("bare Textual")
    heads = ("CPU %", "server CPU %", "kB/s", "first byte s", "first data s", "first data CPU s", "peak MB")
    lines = [f"{'':20}" + "".join(f"{head:>18}" for head in heads)]
    for name, row in figures.items():
        cells = [_cell(value, None if bare is None else bare[index]) for index, value in enumerate(row)]
        lines.append(f"{name:20}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _cell(value: float | None, bare: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} (×{value / bare:.2f})" if bare else f"{value:.2f}"


def main() -> int:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description="The whole program on a busy server, beside others.")
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("--rate", type=float, default=1000.0, help="transactions per second of all clients")
    parser.add_argument("--size", default="200x50", help="columns x rows")
    parser.add_argument("--seconds", type=float, default=30.0, help="per program and round")
    parser.add_argument("--settle", type=float, default=8.0, help="seconds left out of the steady figures")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--colours", default="truecolor", choices=("truecolor", "256", "16"))
    parser.add_argument("--save", type=Path, help="directory that gets what each program wrote in the last round")
    parser.add_argument(
        "--only", nargs="+", default=["bare Textual", "pgtop-tune", "pgtop-tune --plain", "pg_activity"]
    )
    parser.add_argument("--pages", nargs="*", default=[], help="keys of pages that are measured beside the dashboard")
    chosen = parser.parse_args()
    columns, rows = (int(part) for part in chosen.size.split("x"))
    # As pip leaves an installed program, which Textual is on this side of the comparison.
    compileall.compile_dir(_HERE.parents[1] / "pgtop_tune", quiet=1)
    settings = {"max_connections": str(chosen.connections + 20), "shared_buffers": "256MB", "fsync": "off"}
    results: dict[str, list[tuple[Measurement, float | None]]] = {}
    with tempfile.TemporaryDirectory() as scratch, Throwaway.create(find_binaries(), settings=settings) as cluster:
        work_dir = Path(scratch)
        surroundings = {f"XDG_{kind}_HOME": str(work_dir / kind) for kind in ("CONFIG", "STATE", "DATA")}
        surroundings["LANG"] = "C.UTF-8"
        programs = contestants(cluster, work_dir, chosen.only, chosen.pages)
        with busy(cluster, chosen.connections, chosen.rate):
            for turn in range(chosen.rounds):
                for one in programs:
                    print(f"round {turn + 1}: {one.name}", file=sys.stderr)
                    share = ServerShare(cluster, one.application, chosen.settle, chosen.seconds)
                    if one.application:
                        share.start()
                    written = bytearray()
                    measurement = measure(
                        one.command,
                        columns=columns,
                        rows=rows,
                        seconds=chosen.seconds,
                        settle_s=chosen.settle,
                        until=one.until,
                        colours=chosen.colours,
                        environment=surroundings,
                        tee=written.extend,
                        press=one.press,
                    )
                    if one.application:
                        share.join()
                    if measurement.exit_status is not None:
                        print(f"{one.name} ended by itself, status {measurement.exit_status}", file=sys.stderr)
                    if chosen.save:
                        (chosen.save / f"{one.name.replace(' ', '')}.raw").write_bytes(written)
                    results.setdefault(one.name, []).append((measurement, share.percent))
    size = f"{chosen.size}, {chosen.connections} sessions, {chosen.rate:.0f} transactions/s, {chosen.colours}"
    print(f"{size}; median of {chosen.rounds} rounds (× bare Textual)\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
