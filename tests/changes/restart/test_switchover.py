"""A standby of the operator's is promoted and a standby again: no commit is lost, whatever happens on the way."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import psycopg
import pytest
from psycopg import sql

from pgtop_tune.base.errors import ClusterProblem, ConnectionProblem, UsageProblem
from pgtop_tune.base.foreign_directory import ForeignDirectory
from pgtop_tune.changes.restart import switchover
from pgtop_tune.changes.restart.switchover import PairOutages, switch_back
from pgtop_tune.cluster.crash import crash, postmaster_at
from pgtop_tune.cluster.promotion import STANDBY_FILE
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.postgres.server.conninfo import parsed, resolve
from pgtop_tune.postgres.server.replication_login import turned_round
from tests.changes.server.test_control import ROOT
from tests.support.by_pg_ctl import run_pg_ctl
from tests.support.processes import alive, eventually, revert_watchdogs
from tests.support.server_pair import Pair, made_pair
from tests.support.servers import Servers, conninfo

SCRIPT = """
import sys
import msgspec
import psycopg
from pgtop_tune.changes.restart import switchover
from pgtop_tune.model.instance import ServerPair
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.postgres.server.conninfo import parsed, resolve
from pgtop_tune.postgres.server.replication_login import turned_round
pair, name, call, written_to = sys.argv[1:]
calls, real = [], getattr(switchover, name)
def then_stand_still(*arguments):
    result = real(*arguments)
    calls.append(name)
    if len(calls) == int(call):
        print("now", flush=True)
        sys.stdin.read()
    return result
setattr(switchover, name, then_stand_still)
servers = switchover.PairOutages(msgspec.json.decode(pair, type=ServerPair), resolve(written_to))
with servers.guarded():
    servers.promote()
    psycopg.connect(written_to, autocommit=True).execute("INSERT INTO kept VALUES ('on the other one')")
    servers.restore()
"""


@pytest.fixture(scope="module")
def pair(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield made_pair(servers, 18, tmp_path_factory.mktemp("journals"), stack)


@pytest.mark.long
@pytest.mark.parametrize("major", [14, 15, 16, 17, 19])
async def test_every_major_changes_roles_and_back(servers: Servers, major: int, tmp_path: Path) -> None:
    with ExitStack() as stack:
        await check_there_and_back(made_pair(servers, major, tmp_path, stack))


async def check_there_and_back(pair: Pair) -> None:
    outages = await pair.outages()
    for number in range(2):
        pair.write(f"before {number}")
        outages.promote()
        pair.write(f"meanwhile {number}", to_standby=True)
        outages.restore()
        pair.write(f"afterwards {number}")
        assert eventually(pair.is_whole)
        assert pair.rows(pair.primary)[-3:] == [f"{when} {number}" for when in ("before", "meanwhile", "afterwards")]


async def test_what_is_committed_on_either_server_stays(pair: Pair) -> None:
    await check_there_and_back(pair)


def half_way(pair: Pair, outages: PairOutages) -> None:
    """Promoted, and left."""


def primary_down(pair: Pair, outages: PairOutages) -> None:
    run_pg_ctl(pair.primary, "stop", "-m", "immediate")


def other_killed(pair: Pair, outages: PairOutages) -> None:
    crash(outages.place.standby)


def both_killed(pair: Pair, outages: PairOutages) -> None:
    crash(outages.place.primary)
    crash(outages.place.standby)


def other_started_by_another(pair: Pair, outages: PairOutages) -> None:
    """As by a service of the machine: both are up, and the earlier primary knows nobody to follow."""
    run_pg_ctl(pair.primary, "restart", "-m", "fast", "-l", os.devnull)
    pair.write("meanwhile", to_standby=True)
    run_pg_ctl(pair.primary, "stop", "-m", "fast")


@pytest.mark.parametrize(
    "act",
    [
        half_way,
        *(
            pytest.param(act, marks=pytest.mark.long)
            for act in (primary_down, other_killed, both_killed, other_started_by_another)
        ),
    ],
)
async def test_the_way_back_begins_wherever_the_servers_stand(
    pair: Pair, act: Callable[[Pair, PairOutages], None]
) -> None:
    outages = await pair.outages()
    outages.promote()
    pair.write(act.__name__, to_standby=True)
    act(pair, outages)
    switch_back(outages.place)
    assert eventually(pair.is_whole)
    assert act.__name__ in pair.rows(pair.primary)[-2:]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        # The primary has ended; the standby is promoted; it is followed.
        pytest.param("_end", 1, marks=pytest.mark.long), ("promote", 1),
        pytest.param("_follow", 1, marks=pytest.mark.long),
        # On the way back: one has ended, both have; both have the file of a standby; the primary is up.
        pytest.param("_end", 2, marks=pytest.mark.long), ("_end", 3),
        pytest.param("_remove", 2, marks=pytest.mark.long),
        pytest.param("start_until_ready", 1, marks=pytest.mark.long),
    ],
)  # fmt: skip
async def test_both_have_their_roles_though_we_are_killed_on_the_way(pair: Pair, name: str, call: int) -> None:
    places = await pair.checked()
    rows = len(pair.rows(pair.primary))
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, msgspec.json.encode(places).decode(), name, str(call), conninfo(pair.standby)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "now\n"
        [watchdog] = revert_watchdogs(program.pid)
        program.send_signal(signal.SIGKILL)
    assert eventually(lambda: not alive(watchdog))
    assert eventually(pair.is_whole)
    is_written = name in {"_remove", "start_until_ready"} or call > 1
    assert len(pair.rows(pair.primary)) == rows + is_written


@contextmanager
def altered(server: Throwaway, name: str, value: str) -> Iterator[None]:
    """Another value of a parameter that a reload changes."""

    def set_to(value: str) -> str:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            [(before,)] = connection.execute("SELECT current_setting(%s)", [name]).fetchall()
            change = sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            connection.execute(change)
            connection.execute("SELECT pg_reload_conf()")
        return str(before)

    def is_now(value: str) -> bool:
        with psycopg.connect(conninfo(server)) as connection:
            return connection.execute("SELECT current_setting(%s)", [name]).fetchall() == [(value,)]

    before = set_to(value)
    try:
        assert eventually(lambda: is_now(value))
        yield
    finally:
        set_to(before)
        assert eventually(lambda: is_now(before))


async def test_no_second_primary_is_started(pair: Pair) -> None:
    """Somebody else has promoted the standby while the primary was down."""
    outages = await pair.outages()
    signal_file = Path(str(pair.standby.data_dir)) / "standby.signal"
    run_pg_ctl(pair.primary, "stop", "-m", "fast")
    kept = Path(shutil.move(signal_file, pair.directory / "kept"))
    try:
        with pytest.raises(ClusterProblem, match="is no standby any more"):
            switch_back(outages.place)
        assert postmaster_at(Path(str(pair.primary.data_dir))) is None
    finally:
        shutil.move(kept, signal_file)
    switch_back(outages.place)
    assert eventually(pair.is_whole)


async def test_a_standby_that_lacks_commits_is_not_promoted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switchover, "_RECEIVED_S", 0.5)
    outages = await pair.outages()
    with altered(pair.standby, "primary_conninfo", f"host={pair.directory} user=nobody"):
        assert eventually(lambda: not pair.has_roles())
        pair.write("not on the standby")
        with pytest.raises(ClusterProblem, match="has not received all WAL"):
            outages.promote()
        switch_back(outages.place)
        assert pair.rows(pair.primary)[-1] == "not on the standby"
    assert eventually(pair.is_whole)


def pg_ctl_starts(server: Throwaway) -> None:
    run_pg_ctl(server, "start", "-w", "-l", os.devnull)


@pytest.mark.parametrize("is_standby", [False, True])
async def test_a_service_that_starts_a_server_on_the_way_back_makes_no_second_primary(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, is_standby: bool
) -> None:
    """Just before the file of its role changes."""
    outages = await pair.outages()
    outages.promote()
    started = list[Throwaway]()
    real_remove, real_replace = switchover._remove, ForeignDirectory.replace

    def start() -> None:
        if not started:
            started.append(pair.standby if is_standby else pair.primary)
            pg_ctl_starts(started[0])
            if is_standby:
                pair.write("on the server that the service started", to_standby=True)

    def remove(server_place: ServerPlace, name: str) -> None:
        if name == STANDBY_FILE and not is_standby:
            start()
        real_remove(server_place, name)

    def replace(directory: ForeignDirectory, name: str, content: bytes, mode: int = 0o600) -> None:
        if name == STANDBY_FILE and is_standby:
            start()
        real_replace(directory, name, content, mode)

    monkeypatch.setattr(switchover, "_remove", remove)
    monkeypatch.setattr(ForeignDirectory, "replace", replace)
    outages.restore()
    assert started
    assert eventually(pair.is_whole)
    assert ("on the server that the service started" in pair.rows(pair.primary)) == is_standby


@pytest.mark.long
async def test_the_standby_of_a_primary_that_crashed_instead_of_ending_is_not_promoted(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last commits may be in its own WAL alone."""
    outages = await pair.outages()
    with monkeypatch.context() as patched:
        patched.setattr(switchover, "_end", crash)
        with pytest.raises(ClusterProblem, match="crashed as it ended"):
            outages.promote()
    outages.restore()
    assert eventually(pair.is_whole)


@pytest.mark.long
async def test_a_standby_that_crashes_before_its_promotion_is_a_failure_in_our_words(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages = await pair.outages()
    real_end = switchover._end

    def end_and_crash(server_place: ServerPlace) -> None:
        real_end(server_place)
        crash(outages.place.standby)

    with monkeypatch.context() as patched:
        patched.setattr(switchover, "_end", end_and_crash)
        with pytest.raises(ConnectionProblem):
            outages.promote()
    outages.restore()
    assert eventually(pair.is_whole)


def test_the_login_of_a_standby_writes_no_file_that_the_server_names() -> None:
    [endpoint] = resolve("host=/s port=5433").endpoints
    source = turned_round("host=/p port=5432 user=r sslmode=require sslkeylogfile=/etc/cron.d/keys", endpoint)
    assert parsed(source) == {"user": "r", "sslmode": "require", "host": "/s", "port": "5433"}


@pytest.mark.parametrize(
    ("method", "more", "refused"),
    [
        ("peer map=here", "", ""),
        ("scram-sha-256", " passfile=passes", ""),
        ("reject", "", "rejects replication connection"),
    ],
)
async def test_the_account_of_the_primary_is_let_in_not_ours(pair: Pair, method: str, more: str, refused: str) -> None:
    """As Debian's servers do it: the name of the account is the name of the role; or with its file of passwords."""
    data, user = Path(str(pair.standby.data_dir)), pair.standby.user
    account = pwd.getpwuid(data.stat().st_uid)
    passes = Path(str(pair.primary.data_dir)) / "passes"
    passes.write_text(f"*:*:*:{user}:s3cret\n", encoding="utf-8")
    passes.chmod(0o600)
    os.chown(passes, account.pw_uid, account.pw_gid)
    with psycopg.connect(conninfo(pair.primary), autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD 's3cret'").format(sql.Identifier(user)))
    with psycopg.connect(conninfo(pair.standby)) as connection:
        [(source,)] = connection.execute("SELECT current_setting('primary_conninfo')").fetchall()
    kept = {name: (data / name).read_bytes() for name in ("pg_hba.conf", "pg_ident.conf")}
    try:
        (data / "pg_hba.conf").write_bytes(f"local replication all {method}\n".encode() + kept["pg_hba.conf"])
        (data / "pg_ident.conf").write_text(f"here {account.pw_name} {user}\n", encoding="utf-8")
        with altered(pair.standby, "primary_conninfo", f"{source}{more}"):
            assert eventually(lambda: pair.has_roles() and uses(pair.standby, method))
            if refused:
                with pytest.raises(UsageProblem, match=refused):
                    await pair.checked()
            else:
                await pair.checked()
    finally:
        for name, content in kept.items():
            (data / name).write_bytes(content)
        run_pg_ctl(pair.standby, "reload")
        assert eventually(pair.has_roles)


def uses(server: Throwaway, method: str) -> bool:
    """Whether the server has read that line of its pg_hba.conf."""
    with psycopg.connect(conninfo(server)) as connection:
        [(name, loaded_s, changed_s)] = connection.execute(
            "SELECT auth_method, extract(epoch FROM pg_conf_load_time()),"
            " extract(epoch FROM (pg_stat_file('pg_hba.conf')).modification)"
            " FROM pg_hba_file_rules ORDER BY line_number LIMIT 1"
        ).fetchall()
    return bool(name == method.partition(" ")[0] and loaded_s > changed_s)


async def test_two_processes_do_not_change_roles_at_a_time(pair: Pair) -> None:
    """As `experiment resume` beside the process that watches a killed run."""
    outages = await pair.outages()
    with ForeignDirectory.find(str(pair.primary.data_dir)) as data:
        data.lock()
        for change in (outages.promote, outages.restore):
            with pytest.raises(ClusterProblem, match="another process is changing the roles"):
                change()
    assert pair.is_whole()


@pytest.mark.long
async def test_the_standby_runs_though_its_primary_does_not_start(pair: Pair) -> None:
    outages = await pair.outages()
    for server in (pair.primary, pair.standby):
        run_pg_ctl(server, "stop", "-m", "fast")
    settings = Path(str(pair.primary.data_dir)) / "postgresql.auto.conf"
    before = settings.read_bytes()
    settings.write_bytes(before + b"no such line\n")
    try:
        with pytest.raises(ClusterProblem, match="does not start"):
            outages.restore()
        assert postmaster_at(Path(str(pair.standby.data_dir)))
    finally:
        settings.write_bytes(before)
    outages.restore()
    assert eventually(pair.is_whole)


async def test_a_promotion_is_refused_where_it_could_not_be_taken_back(pair: Pair) -> None:
    pids = [postmaster_at(Path(str(server.data_dir))) for server in (pair.primary, pair.standby)]
    with pytest.raises(UsageProblem, match=f"outages of {pair.allowed[1]}, which is not allowed"):
        await pair.checked(pair.allowed[:1])
    for conninfo_of_plan in (pair.conninfo("any"), resolve(conninfo(pair.primary))):
        with pytest.raises(UsageProblem, match="names the primary and one standby"):
            await pair.checked(conninfo=conninfo_of_plan)
    with psycopg.connect(conninfo(pair.standby)) as connection:
        [(source,)] = connection.execute("SELECT current_setting('primary_conninfo')").fetchall()
    for name, value, reason in (
        ("synchronous_standby_names", "somebody", "would wait for a synchronous standby"),
        ("recovery_min_apply_delay", "1s", "recovery_min_apply_delay forbid"),
        ("recovery_end_command", "true", "recovery_end_command forbid"),
        ("primary_conninfo", f"{source} password=s3cret", "has a password"),
    ):
        with altered(pair.standby, name, value):
            assert eventually(pair.has_roles)
            with pytest.raises(UsageProblem, match=reason) as refused:
                await pair.checked()
            assert "s3cret" not in str(refused.value)
    assert eventually(pair.has_roles)
    assert [postmaster_at(Path(str(server.data_dir))) for server in (pair.primary, pair.standby)] == pids
