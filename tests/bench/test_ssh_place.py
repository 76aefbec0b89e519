"""pgbench through a real sshd on the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.places import PREFIX, SshAddress
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.bench.ssh import SshPlace
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.bench import BenchRun, LoadSpec, RunState, ScriptChoice
from tests.bench.conftest import Watch, endpoint_of
from tests.bench.sshd import Sshd, sshd, why_not
from tests.support.processes import eventually
from tests.support.servers import conninfo

WAIT_S = 60.0


def over(run: BenchRun) -> bool:
    return run.state not in (RunState.STARTING, RunState.RUNNING)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with sshd(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture
async def far(daemon: Sshd, tmp_path: Path) -> AsyncIterator[Callable[..., Watch]]:
    """Makes runners of loads over there; nothing of them may be left afterwards, here and there."""
    made: list[Watch] = []

    def make(endpoint: LoadEndpoint, pgbench: Path | None = None) -> Watch:
        place = SshPlace(daemon.address, daemon.client)
        made.append(Watch(PgbenchRunner(endpoint, pgbench=pgbench, load_places=[place], base=tmp_path)))
        return made[-1]

    yield make
    for each in made:
        await each.runner.aclose()
        assert eventually(lambda each=each: not processes(run_name(each)), WAIT_S)
        assert eventually(lambda each=each: not there(run_name(each)), WAIT_S)
    assert list(tmp_path.iterdir()) == []


def run_name(load: Watch) -> str:
    """Of the run's directory, which is in its command line."""
    return name_in(load.look().command)


def name_in(command: str) -> str:
    return command[command.index(PREFIX) :].split("/")[0]


def processes(name: str, program: bytes = b"pgbench") -> list[int]:
    """Processes of this program with this directory in their command line."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = entry.joinpath("cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].rpartition(b"/")[2] == program and any(name.encode() in word for word in words):
            found.append(int(entry.name))
    return found


def there(name: str) -> list[Path]:
    return [path for base in ("/dev/shm", "/tmp") if (path := Path(base, name)).exists()]


async def test_a_whole_run(tables: LoadEndpoint, far: Callable[..., Watch], daemon: Sshd) -> None:
    pgbench = find_pgbench()
    load = far(tables, pgbench.path)
    spec = LoadSpec(clients=4, threads=2, duration_s=3, rate_per_s=200)
    shown = await load.runner.preview(spec)
    await load.runner.start(spec)
    assert load.look().command == shown
    run = await load.until(over, WAIT_S)
    assert (run.state, run.exit_status, run.message, run.pid) == (RunState.FINISHED, 0, "", None)
    assert run.pgbench_version == pgbench.version
    assert run.machine == str(daemon.address)
    assert run.clock_ahead_ms is not None
    assert run.clock_uncertain_ms is not None
    # It is the same clock.
    assert abs(run.clock_ahead_ms) <= run.clock_uncertain_ms
    report = load.runner.report
    assert report is not None
    assert report.processed == sum(second.logged for second in load.latencies) > 0
    assert [round(line.elapsed_s) for line in load.progress][:2] == [1, 2]


async def test_a_machine_has_a_thread_for_each_of_its_own_cores(tables: LoadEndpoint, tmp_path: Path) -> None:
    programs = tmp_path / "there"
    programs.mkdir()
    client = f'PATH={programs}:$PATH; shift "$(($# - 1))"; exec sh -c "$1"'
    for name, text in {"nproc": "echo 3", "ssh": client}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    place = SshPlace(SshAddress("there"), (str(programs / "ssh"),))
    load = Watch(PgbenchRunner(tables, pgbench=find_pgbench().path, load_places=[place], base=tmp_path))
    shown = await load.runner.preview(LoadSpec(clients=5, transactions=5))
    await load.runner.start(LoadSpec(clients=5, transactions=5))
    run = await load.until(over, WAIT_S)
    await load.runner.aclose()
    assert (run.state, run.threads, run.command) == (RunState.FINISHED, 3, shown)
    assert " -j 3 " in shown


async def test_the_log_comes_while_it_runs_and_a_stop_still_reports(
    tables: LoadEndpoint, far: Callable[..., Watch]
) -> None:
    load = far(tables)
    await load.runner.start(LoadSpec(clients=2, threads=2, rate_per_s=100))
    await load.until(lambda run: load.latencies and load.progress, WAIT_S)
    assert len(processes(run_name(load))) == 1
    await load.runner.stop()
    assert load.look().state is RunState.STOPPED
    assert load.runner.report is not None
    assert load.runner.report.processed == sum(second.logged for second in load.latencies)


async def test_when_the_connection_is_cut_pgbench_ends_over_there(
    tables: LoadEndpoint, far: Callable[..., Watch]
) -> None:
    load = far(tables)
    await load.runner.start(LoadSpec(clients=2, rate_per_s=100))
    await load.until(lambda run: load.progress, WAIT_S)
    name = run_name(load)
    (client,) = processes(name, b"ssh")
    os.kill(client, signal.SIGKILL)
    run = await load.until(over, WAIT_S)
    assert run.state is RunState.FAILED
    assert eventually(lambda: not processes(name), WAIT_S)
    assert eventually(lambda: not there(name), WAIT_S)


@pytest.mark.long
async def test_when_the_connection_falls_silent_pgbench_ends_over_there(
    tables: LoadEndpoint, far: Callable[..., Watch]
) -> None:
    """A stopped client is what a cut cable looks like from there: nothing comes, and nothing can be written."""
    load = far(tables)
    await load.runner.start(LoadSpec(clients=4))
    await load.until(lambda run: load.progress, WAIT_S)
    name = run_name(load)
    (client,) = processes(name, b"ssh")
    os.kill(client, signal.SIGSTOP)
    try:
        assert eventually(lambda: not processes(name), 2 * WAIT_S)
        assert eventually(lambda: not there(name), WAIT_S)
    finally:
        os.kill(client, signal.SIGCONT)
    await load.until(over, WAIT_S)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.ssh import SshPlace
from pgtop_tune.bench.places import parse_address
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.model.bench import LoadSpec

async def main(host, port, user, dbname, base, address, *client):
    place = SshPlace(parse_address(address), client)
    runner = PgbenchRunner(LoadEndpoint(host, int(port), user, dbname), load_places=[place], base=Path(base))
    await runner.start(LoadSpec(clients=2, rate_per_s=100))
    sample = runner.sample(0.0)
    while not sample.progress:
        await asyncio.sleep(0.05)
        sample = runner.sample(0.0)
    print(sample.run.command, flush=True)
    await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


def test_when_we_are_killed_nothing_is_left_over_there_or_here(
    tables: LoadEndpoint, daemon: Sshd, tmp_path: Path
) -> None:
    words = [tables.host, str(tables.port), tables.user, tables.dbname, str(tmp_path), str(daemon.address)]
    argv = [sys.executable, "-c", PROGRAM, *words, *daemon.client]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        name = name_in(program.stdout.readline())
        assert len(processes(name)) == 1
        program.send_signal(signal.SIGKILL)
    assert eventually(lambda: not processes(name), WAIT_S)
    assert eventually(lambda: not processes(name, b"ssh"), WAIT_S)
    assert eventually(lambda: not there(name), WAIT_S)
    assert eventually(lambda: list(tmp_path.iterdir()) == [], WAIT_S)


async def test_scripts_are_brought_whatever_their_names(
    tables: LoadEndpoint, far: Callable[..., Watch], tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path_factory.mktemp("scripts") / "it's a $(script).sql"
    script.write_text("SELECT 'gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n', :low;\n")
    load = far(tables)
    choices = (ScriptChoice(str(script), 2), ScriptChoice(str(script), 1))
    spec = LoadSpec(clients=1, transactions=40, scripts=choices, variables=(("low", "5"),))
    await load.runner.start(spec)
    run = await load.until(over, WAIT_S)
    assert (run.state, run.message) == (RunState.FINISHED, "")
    assert run.scripts == ("it's a $(script).sql",) * 2
    assert sum(script.logged for second in load.latencies for script in second.scripts) == 40


async def test_the_password_is_seen_by_nobody(fresh_server: Throwaway, far: Callable[..., Watch]) -> None:
    password = "se:cr\\et'$(x)"
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("CREATE ROLE locked LOGIN SUPERUSER PASSWORD {}").format(password))
        connection.execute("CREATE TABLE pgbench_branches AS SELECT 1 AS bid")
        connection.execute("CREATE TABLE pgbench_accounts AS SELECT 1 AS aid, 0 AS abalance")
        rules = Path(str(fresh_server.data_dir)) / "pg_hba.conf"
        rules.write_text("local all locked scram-sha-256\nlocal all all trust\n")
        connection.execute("SELECT pg_reload_conf()")
    load = far(replace(endpoint_of(fresh_server), user="locked", password=Secret(password)))
    await load.runner.start(LoadSpec("select-only", clients=1, rate_per_s=100))
    await load.until(lambda run: load.progress, WAIT_S)
    for entry in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                assert password.encode() not in entry.joinpath(name).read_bytes()
            except OSError:
                continue
    (directory,) = there(run_name(load))
    assert os.stat(directory).st_mode & 0o777 == 0o700
    assert os.stat(directory / "passfile").st_mode & 0o777 == 0o600
    await load.runner.stop()


async def test_a_failure_over_there_has_pgbenchs_own_words_and_our_hint(
    tables: LoadEndpoint, far: Callable[..., Watch]
) -> None:
    load = far(replace(tables, dbname="template1"))
    await load.runner.start(LoadSpec())
    run = await load.until(over, WAIT_S)
    assert (run.state, run.exit_status) == (RunState.FAILED, 1)
    assert "pgbench_branches" in run.message
    assert "pgbench -i" in run.message.rpartition("hint: ")[2]


async def test_a_machine_that_does_not_let_us_in_or_has_no_pgbench_is_told(
    tables: LoadEndpoint, daemon: Sshd, tmp_path: Path
) -> None:
    nowhere = SshPlace(SshAddress("127.0.0.1", "nobody", 1), daemon.client)
    with pytest.raises(LoadProblem, match=r"ssh://nobody@127\.0\.0\.1:1 cannot be reached: .*refused"):
        await PgbenchRunner(tables, load_places=[nowhere], base=tmp_path).start(LoadSpec())
    here = SshPlace(daemon.address, daemon.client)
    with pytest.raises(LoadProblem, match="no pgbench at /nowhere on ssh://"):
        await PgbenchRunner(tables, pgbench=Path("/nowhere"), load_places=[here], base=tmp_path).start(LoadSpec())
    assert list(tmp_path.iterdir()) == []
