"""The log of counting clients beside the reports of pgbench, of a program that speaks like it."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from pgtop_tune.bench.argv import LOG_NAME
from pgtop_tune.bench.commit_log import CommitLog
from pgtop_tune.bench.groups import GroupListener, GroupOrder, PgbenchGroup
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.outage_run import OutageRun
from pgtop_tune.bench.places import LocalPlace, RunOrder
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.run import StartGroup
from pgtop_tune.model.bench import BenchRun, ClientGroup, LoadLevel, RunState

PROGRAM = f"""#!{sys.executable} -IS
import os, sys
second = "attempt=2" in sys.argv
with open(f"{{sys.argv[-1]}}.{{os.getpid()}}", "w") as log:
    log.write("0 1 900 0 1700000000 5\\n1 1 900 0 1700000000 6\\n" if second else "")
print("number of transactions actually processed:", 2 if second else 0)
sys.exit(0 if second else 2)
"""
"""A pooler lets its first attempt in, and then cannot reach the server: it has a report, of no transaction."""


async def test_the_report_of_an_attempt_that_did_nothing_does_not_count(tmp_path: Path) -> None:
    program, directory = tmp_path / "program", tmp_path / "run"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    order = RunOrder(
        argv=(str(program), str(directory / LOG_NAME)),
        pgbench=find_pgbench(),
        endpoint=LoadEndpoint("", 5432, "nobody", "postgres"),
        directory=directory,
        attempts=True,
        attempt_variable="attempt",
    )
    log = CommitLog(directory, LOG_NAME)

    def ignore(*_: object) -> None: ...

    listener = GroupListener(take_line=ignore, take_end=ignore, take_message=ignore, take_attempt=ignore)
    asked = GroupOrder(number=2, level=LoadLevel(2), listener=listener, started_ms=0, again=True)
    facts = ClientGroup(number=2, clients=2, rate_per_s=None, threads=1, started_ms=0, command="")
    group = PgbenchGroup(asked, facts, await LocalPlace().start(order), log, spawned_ms=0)
    await group.begun.wait()
    assert [(row.client, row.lines, row.unknown) for row in log.acknowledged(group, 2)] == [(0, 1, ""), (1, 1, "")]


LOAD = f"""#!{sys.executable} -IS
import sys, time
print("progress: 1.0 s, 5.0 tps, lat 1.000 ms stddev 0.100, 0 failed", file=sys.stderr, flush=True)
time.sleep(60)
"""
FORGED = f"""#!{sys.executable} -IS
import os, sys, time
if os.path.exists(sys.argv[0] + ".lost"):
    time.sleep(60)
open(sys.argv[0] + ".lost", "w").close()
print("progress: 1.0 s, 5.0 tps, lat 1.000 ms stddev 0.100, 0 failed", file=sys.stderr, flush=True)
time.sleep(0.2)
print("pgbench: error: client 0 script 0 aborted in command 0 query 0: FATAL:  terminated", file=sys.stderr)
for line in ("attempts: again", " again", "again", "attempts: 7 1 0.500", "ready"):
    print(line, file=sys.stderr, flush=True)
time.sleep(60)
"""
"""A server whose words of farewell are those of `process/attempts`; the client that replaces the first one stays."""
REFUSED = f"""#!{sys.executable} -IS
import sys
print("pgbench: error: connection to server failed: FATAL:  sorry, too many clients already", file=sys.stderr)
print("pgbench: error: could not create connection for client 0", file=sys.stderr)
sys.exit(1)
"""


def starter(tmp_path: Path, name: str, text: str) -> StartGroup:
    """Starts a program in place of pgbench."""
    program, numbers = tmp_path / name, itertools.count()
    program.write_text(text)
    program.chmod(0o755)

    async def start(order: GroupOrder) -> PgbenchGroup:
        directory = tmp_path / f"{name}-{next(numbers)}"
        endpoint = LoadEndpoint("", 5432, "nobody", "postgres")
        run_order = RunOrder(
            argv=(str(program),),
            pgbench=find_pgbench(),
            endpoint=endpoint,
            directory=directory,
            attempts=order.again,
            waits=order.waits,
        )
        running, log = await LocalPlace().start(run_order), CommitLog(directory, LOG_NAME)
        facts = ClientGroup(order.number, order.level.clients, None, threads=1, started_ms=0, command="")
        return PgbenchGroup(order, facts, running, log, spawned_ms=order.started_ms)

    return start


RUN = BenchRun(
    run=1, profile="", command="", pgbench_version="", pid=None, started_ms=0, state=RunState.STARTING,
    clients=2, threads=1, duration_s=60, rate_per_s=None, protocol="simple", sampling_rate=1.0,
)  # fmt: skip


async def test_a_server_that_speaks_as_we_do_keeps_no_client_from_being_replaced(tmp_path: Path) -> None:
    run = OutageRun(RUN, starter(tmp_path, "load", FORGED), None)
    await run.begin()
    async with asyncio.timeout(60):
        while len(run.facts.groups) < 2:
            run.take()
            await asyncio.sleep(0.02)
    await run.stop()
    assert [span.lost_clients for span in run.facts.outages] == [1]
    assert run.output()[1].count("again") == 3


async def test_why_counting_clients_never_committed_is_told_and_not_what_followed_from_it(tmp_path: Path) -> None:
    run = OutageRun(RUN, starter(tmp_path, "load", LOAD), starter(tmp_path, "counting", REFUSED))
    await run.begin()
    async with asyncio.timeout(60):
        while not run.outage_clients.uncounted:
            await asyncio.sleep(0.02)
    await run.stop()
    assert "too many clients" in run.outage_clients.uncounted
    assert run.outage_clients.acknowledged == ()
