"""Makes tests/bench/samples/MAJOR/: what a real pgbench prints and logs, one run per row of `RUNS`.

    python -m tests.bench.record_samples PGBENCH…

Asserts nothing; a server of its own, gone afterwards. The first lines of each log are kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgtop_tune.bench.locate import Pgbench, probe
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.quick_server import QUICK
from tests.support.servers import Servers, conninfo

SAMPLES = Path(__file__).parent / "samples"
LOG_LINES = 300
SCRIPTS = {
    "read.sql": "\\set aid random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n",
    "write.sql": "\\set aid random(1, 100000)\nBEGIN;\n"
    "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\nEND;\n",
    "transfer.sql": "\\set a random(1, 4)\n\\set b random(1, 4)\nBEGIN;\n"
    "UPDATE pgbench_tellers SET tbalance = tbalance - 1 WHERE tid = :a;\n\\sleep 1 ms\n"
    "UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = :b;\nEND;\n",
    "repeatable.sql": "BEGIN ISOLATION LEVEL REPEATABLE READ;\n"
    "UPDATE pgbench_branches SET bbalance = bbalance + 1;\nEND;\n",
    "one_fails.sql": "SELECT 1 / (CASE WHEN :client_id = 1 AND random() > 0.99 THEN 0 ELSE 1 END);\n",
    "syntax.sql": "SELECT 1;\nSELEC 2;\n",
    "meta.sql": "\\set a random(1\nSELECT :a;\n",
    "sleep.sql": "SELECT pg_sleep(3);\n",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One run.

    Attributes:
        options: Of pgbench.
        since: First major that has them.
        during: SQL run a second after the start.
        stop: End the server in the middle.
    """

    options: str
    since: int = 14
    during: str = ""
    stop: bool = False


KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'"
FAILING = "-c 6 -j 2 -T 2 -f transfer.sql@3 -f repeatable.sql@1"
RUNS = {
    "finished": Sample("-c 4 -j 2 -T 2 -b tpcb-like"),
    "statements": Sample("-c 4 -j 2 -T 2 -r -b tpcb-like"),
    "scripts": Sample("-c 4 -j 2 -T 2 -f read.sql@9 -f write.sql@1 -f sleep.sql@0"),
    "scripts_statements": Sample("-c 4 -j 2 -T 2 -r -M prepared -f read.sql@9 -f write.sql@1"),
    "connecting": Sample("-c 2 -j 2 -T 2 -C -b select-only"),
    "throttled": Sample("-c 4 -j 2 -T 2 -R 200 -b tpcb-like"),
    "skipped": Sample("-c 2 -j 2 -T 2 -R 20000 -L 2 -b tpcb-like"),
    "skipped_scripts": Sample("-c 2 -j 2 -T 2 -r -R 20000 -L 2 -f read.sql -f write.sql"),
    "late": Sample("-c 4 -j 2 -T 2 -L 1.5 -b tpcb-like"),
    "transactions": Sample("-c 4 -j 2 -t 250 -b select-only"),
    "transactions_aborted": Sample("-c 2 -j 1 -t 5000 -f one_fails.sql"),
    "aborted": Sample("-c 4 -j 2 -T 2 -f one_fails.sql"),
    "aborted_at_once": Sample("-c 2 -j 1 -T 2 -f syntax.sql"),
    "bad_script": Sample("-c 2 -j 1 -T 2 -f meta.sql"),
    "nothing_finished": Sample("-c 2 -j 1 -T 3 -f sleep.sql", during=KILL),
    "terminated": Sample("-c 2 -j 2 -T 3 -r -b tpcb-like", during=KILL),
    "failed": Sample(f"{FAILING} --failures-detailed", since=15),
    "failed_statements": Sample(f"{FAILING} -r --failures-detailed", since=15),
    "retried": Sample(f"{FAILING} --max-tries=3 --failures-detailed", since=15),
    "retried_statements": Sample(f"{FAILING} -r --max-tries=3 --failures-detailed", since=15),
    "everything": Sample(f"{FAILING} -r -R 400 -L 200 --max-tries=3 --failures-detailed", since=15),
    "continued": Sample(
        "-c 4 -j 2 -T 2 -r -f read.sql@9 -f syntax.sql@1 --continue-on-error --failures-detailed", since=19
    ),
    "server_gone": Sample("-c 4 -j 2 -T 4 -b select-only", stop=True),
}


def record(pgbench: Pgbench, server: Throwaway, name: str, sample: Sample) -> None:
    """Runs pgbench once and keeps stdout, stderr and the beginning of its log."""
    directory = SAMPLES / str(pgbench.version_num // 10_000)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for script, text in SCRIPTS.items():
            Path(scratch, script).write_text(text)
        argv = [str(pgbench.path), "-n", "-P", "1", *sample.options.split(), "-l", "--log-prefix=log"]
        argv += _where(server)
        timer = threading.Timer(1.3, _disturb, (server, sample))
        timer.start()
        done = subprocess.run(
            argv,
            cwd=scratch,
            env=os.environ | pgbench.environment() | {"LC_ALL": "C", "PGOPTIONS": "-c deadlock_timeout=10ms"},
            capture_output=True,
            text=True,
            check=False,
        )
        timer.join()
        for suffix, text in (("stdout", done.stdout), ("stderr", done.stderr)):
            # A socket's directory of one machine says nothing to anybody else.
            text = text.replace(str(server.socket_dir), "/run/postgresql")
            directory.joinpath(f"{name}.{suffix}").write_text(text)
        lines = [line for path in sorted(Path(scratch).glob("log.*")) for line in path.open()]
        directory.joinpath(f"{name}.log").write_text("".join(lines[:: max(1, len(lines) // LOG_LINES)]))
        print(f"{directory.name}/{name}: exit status {done.returncode}, {len(lines)} transactions in the log")


def _where(server: Throwaway) -> list[str]:
    return ["-h", str(server.socket_dir), "-p", str(server.port), "-U", server.user, "postgres"]


def _disturb(server: Throwaway, sample: Sample) -> None:
    if sample.during:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute(sample.during.encode())
    if sample.stop:
        server.stop("immediate")


def main() -> None:
    for path in sys.argv[1:]:
        pgbench = probe(Path(path).resolve())
        server = Throwaway.create(Servers().binaries(18), settings=QUICK)
        try:
            environment = os.environ | pgbench.environment()
            subprocess.run([path, "-i", "-q", *_where(server)], check=True, capture_output=True, env=environment)
            for name, sample in RUNS.items():
                if pgbench.version_num >= sample.since * 10_000:
                    record(pgbench, server, name, sample)
        finally:
            server.stop("immediate")


if __name__ == "__main__":
    main()
