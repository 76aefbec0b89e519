"""The command line: what it must always have, and what must never be in it."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.bench.argv import run_argv, shell_quoted, threads_for
from pgtop_tune.bench.datasets.pgbench_tables import initialise_argv
from pgtop_tune.bench.locate import Pgbench
from pgtop_tune.bench.ports import LoadEndpoint, environment
from pgtop_tune.bench.profiles import Profile, Script
from pgtop_tune.model.bench import LoadSpec, ScriptChoice

PGBENCH = Pgbench(Path("/opt/pg/bin/pgbench"), 180006, "18.6")
ENDPOINT = LoadEndpoint("/run/postgresql", 5433, "bench", "shop", Secret("hunter2"))
LOOKUPS = Profile("select-only", "t", "d", builtin="select-only", log_class="lookups")
COMMITS = Profile("tpcb-like", "t", "d", builtin="tpcb-like", log_class="commits")
LOG = Path("/dev/shm/run")


def argv(spec: LoadSpec, profile: Profile = COMMITS, endpoint: LoadEndpoint = ENDPOINT) -> list[str]:
    return run_argv(spec, profile, PGBENCH, endpoint, LOG)


def test_the_whole_line() -> None:
    spec = LoadSpec("select-only", clients=16, threads=4, duration_s=300, rate_per_s=2500.5, protocol="extended")
    assert shell_quoted(argv(spec)) == (
        "/opt/pg/bin/pgbench -n -P 1 -c 16 -j 4 -T 300 -M extended -R 2500.5 --failures-detailed -b tpcb-like "
        "-l --log-prefix=/dev/shm/run/transactions -h /run/postgresql -p 5433 -U bench shop"
    )


def test_every_option_has_its_word() -> None:
    spec = LoadSpec(
        clients=2,
        threads=1,
        transactions=1000,
        rate_per_s=50,
        latency_limit_ms=12.5,
        max_tries=3,
        connect_per_transaction=True,
        seed=2**64 - 1,
        per_statement=True,
        scripts=(ScriptChoice("my load.sql", 3), ScriptChoice("./other.sql")),
        variables=(("low", "1"), ("name", "it's = 2")),
    )
    assert shell_quoted(argv(spec)) == (
        "/opt/pg/bin/pgbench -n -P 1 -c 2 -j 1 -t 1000 -M prepared -R 50 -L 12.5 -C -r --max-tries=3 "
        "--failures-detailed --random-seed=18446744073709551615 -f 'my load.sql@3' -f other.sql@1 -D low=1 "
        "-D 'name=it'\"'\"'s = 2' -l --log-prefix=/dev/shm/run/transactions -h /run/postgresql -p 5433 -U bench shop"
    )


async def test_pgbench_takes_every_option_we_give_it(tables: LoadEndpoint, pgbench: Pgbench, tmp_path: Path) -> None:
    script = tmp_path / "a b@c.sql"
    script.write_text("SELECT :low + 1;\n")
    spec = LoadSpec(
        clients=2,
        threads=2,
        transactions=5,
        rate_per_s=1000,
        latency_limit_ms=5000,
        connect_per_transaction=True,
        seed=7,
        per_statement=True,
        scripts=(ScriptChoice(str(script), 2),),
        variables=(("low", "1"),),
    )
    if pgbench.version_num >= 150000:
        spec = replace(spec, max_tries=2)
    words = run_argv(spec, COMMITS, pgbench, tables, tmp_path)
    process = await asyncio.create_subprocess_exec(
        *words, env=environment(tables, pgbench, None), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    assert b"number of transactions actually processed: 10/10" in stdout
    assert len(list(tmp_path.glob("transactions.*"))) == 2


@pytest.mark.parametrize("version_num", [130000, 140019])
def test_what_a_pgbench_is_too_old_for_is_told_with_the_version_that_has_it(version_num: int) -> None:
    old = replace(PGBENCH, version_num=version_num, version="14.19")
    with pytest.raises(LoadProblem, match=r"needs pgbench 15 or later; .* is version 14\.19"):
        run_argv(LoadSpec(max_tries=2), COMMITS, old, ENDPOINT, LOG)
    with pytest.raises(LoadProblem, match=r"continuing after an error .* needs pgbench 19 or later"):
        run_argv(LoadSpec(continue_on_error=True), COMMITS, replace(old, version_num=180006), ENDPOINT, LOG)
    assert "--failures-detailed" not in run_argv(LoadSpec(), COMMITS, old, ENDPOINT, LOG)


def test_until_stopped_is_a_long_time_because_only_then_can_it_be_ended_in_order() -> None:
    words = argv(LoadSpec(duration_s=None))
    assert int(words[words.index("-T") + 1]) > 365 * 86_400


def test_loads_are_logged_wholly_but_fast_ones_on_large_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert not [word for word in argv(LoadSpec(), LOOKUPS) if "sampling" in word]
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert "--sampling-rate=0.15" in argv(LoadSpec(), LOOKUPS)
    assert not [word for word in argv(LoadSpec(), COMMITS) if "sampling" in word]
    assert not [word for word in argv(LoadSpec(rate_per_s=500), LOOKUPS) if "sampling" in word]


def test_threads_follow_cores_and_never_exceed_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert [threads_for(LoadSpec(clients=clients)) for clients in (1, 4, 100)] == [1, 4, 6]
    assert threads_for(LoadSpec(clients=3, threads=8)) == 3


def test_scripts_come_with_their_weights() -> None:
    scripts = (Script(Path("/p/a b.sql"), 3), Script(Path("/p/x@y.sql"), 1))
    words = argv(LoadSpec(), Profile("mine", "t", "d", scripts=scripts))
    assert [words[at + 1] for at, word in enumerate(words) if word == "-f"] == ["/p/a b.sql@3", "/p/x@y.sql@1"]
    assert "-b" not in words


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clients": 0}, "clients"),
        ({"clients": 10_001}, "clients"),
        ({"threads": -1}, "threads"),
        ({"duration_s": 0}, "time"),
        ({"rate_per_s": 0.0}, "rate"),
        ({"rate_per_s": float("nan")}, "rate"),
        ({"protocol": "quick"}, "protocol"),
        ({"transactions": 0}, "transactions"),
        ({"transactions": 5, "duration_s": 5}, "a duration and a number of transactions cannot"),
        ({"latency_limit_ms": 0.0}, "latency limit"),
        ({"max_tries": -1}, "tries"),
        ({"max_tries": 0, "transactions": 5}, "unlimited tries"),
        ({"seed": -1}, "seed"),
        ({"scripts": (ScriptChoice("a.sql", 0), ScriptChoice("b.sql", 0))}, "weight above 0"),
        ({"scripts": (ScriptChoice("a.sql", -1),)}, "weight of a script"),
        ({"scripts": (ScriptChoice(""),)}, "file name"),
        ({"scripts": (ScriptChoice("a.sql"),) * 129}, "128 scripts"),
        ({"variables": (("a-b", "1"),)}, "variable name"),
        ({"variables": (("a", "\0"),)}, "zero byte"),
    ],
)
def test_what_pgbench_would_refuse_is_refused_with_its_range(change: dict[str, object], says: str) -> None:
    with pytest.raises(LoadProblem, match=says):
        argv(replace(LoadSpec(), **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("shop", "shop"),
        ("a=b", "dbname='a=b'"),
        ("postgres://evil", "dbname='postgres://evil'"),
        ("-h", "dbname='-h'"),
        ("it's \\", "dbname='it\\'s \\\\'"),
    ],
)
def test_a_database_name_stays_a_name(name: str, word: str) -> None:
    assert argv(LoadSpec(), endpoint=replace(ENDPOINT, dbname=name))[-1] == word


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1))
def test_the_line_shown_is_the_line_run(name: str) -> None:
    words = argv(LoadSpec(), endpoint=replace(ENDPOINT, dbname=name))
    assert shlex.split(shell_quoted(words)) == words


def test_no_password_on_the_command_line_and_none_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "somebody else's")
    words = [*argv(LoadSpec()), *initialise_argv(10, PGBENCH, ENDPOINT)]
    variables = environment(ENDPOINT, PGBENCH, Path("/dev/shm/run/passfile"))
    assert "hunter2" not in " ".join([*words, *variables.values()])
    assert "PGPASSWORD" not in variables
    assert variables["PGPASSFILE"] == "/dev/shm/run/passfile"


def test_without_a_password_of_the_endpoint_none_is_inherited_and_no_other_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("PGPASSWORD", "mine"), ("PGHOSTADDR", "192.0.2.1"), ("PGSERVICE", "prod")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    endpoint = replace(ENDPOINT, password=None, env={"PGSSLMODE": "require"})
    variables = environment(endpoint, PGBENCH, None)
    assert not {"PGPASSWORD", "PGHOSTADDR", "PGSERVICE"} & set(variables)
    assert variables["PGSSLMODE"] == "require"
    assert variables["LC_ALL"] == "C"


def test_clients_that_follow_get_all_hosts() -> None:
    endpoint = replace(ENDPOINT, host="a", port=5433, further=(("/run/b", 5432), ("::1", 6432)))
    argv = run_argv(LoadSpec(duration_s=5), LOOKUPS, PGBENCH, endpoint, LOG)
    assert argv[-7:] == ["-h", "a,/run/b,::1", "-p", "5433,5432,6432", "-U", "bench", "shop"]
    assert str(endpoint) == "a:5433,/run/b:5432,[::1]:6432"
