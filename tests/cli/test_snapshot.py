"""`parameters` and `advise`: at once an end where waiting changes nothing, and patience with a server that starts."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn
from pgtop_tune.cli.connections import ConnectionWords
from pgtop_tune.cli.snapshot import look
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.sampling.postgres_sampler import PostgresSampler
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.locked_server import ask_for_password
from tests.support.processes import eventually
from tests.support.servers import conninfo


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("host=127.0.0.1 port=1", "nothing is listening on this port"),
        ("host={tmp}", "nothing is listening on this socket"),
        ("host='no such host'", "unknown host name"),
        ("host={tmp} keepalives=1", "nothing is listening on this socket"),
        ("{server} dbname=no_such", 'database "no_such" does not exist'),
        ("{server} user=nobody_there", 'role "nobody_there" does not exist'),
        ("{server} target_session_attrs=standby", "no server at this address is standby"),
    ],
)
def test_what_waiting_does_not_change_is_asked_once(
    target: str, words: str, server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def again(self: object, attempt: int) -> None:
        assert attempt < 3, "asked again and again"
        await pause(self, attempt)  # type: ignore[arg-type]

    pause = PostgresSampler._pause
    monkeypatch.setattr(PostgresSampler, "_pause", again)
    with pytest.raises(ConnectionProblem) as refused:
        look(ConnectionWords(target.format(tmp=tmp_path, server=conninfo(server)), no_password=True))
    assert words in refused.value.message


def test_a_wrong_password_is_sent_once(fresh_server: Throwaway, tmp_path: Path) -> None:
    ask_for_password(fresh_server, "locked", "right")
    with pytest.raises(NotLetIn, match="password authentication failed"):
        look(ConnectionWords(f"{conninfo(fresh_server)} user=locked password=wrong", no_password=True))
    assert Path(str(fresh_server.log_file)).read_text().count("password authentication failed") == 1


def test_a_server_that_starts_is_waited_for(make_server: Callable[..., Throwaway], tmp_path: Path) -> None:
    server = make_server(hot_standby="off")
    (Path(str(server.data_dir)) / "standby.signal").touch()
    starting = threading.Thread(target=server.restart)
    starting.start()
    assert eventually(lambda: "entering standby mode" in Path(str(server.log_file)).read_text())
    process = subprocess.Popen(
        [*PROGRAM, "parameters", "-w", conninfo(server)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    try:
        refused = "the database system is not accepting connections"
        assert eventually(lambda: Path(str(server.log_file)).read_text().count(refused) > 1)
        (Path(str(server.data_dir)) / "promote").touch()
        os.kill(server.postmaster_pid, signal.SIGUSR1)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        starting.join(90)
    assert process.returncode == 0, err
    assert "shared_buffers" in out


def test_the_hint_of_the_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    ran = run("advise", "-h", "127.0.0.1", "-p", "1", home=tmp_path)
    assert ran.status == 3
    assert ran.err.endswith(": nothing is listening on this port\nhint: check that the server runs, and the port\n")


@pytest.mark.long
def test_parameters_that_the_server_refuses_to_show_have_its_sentence(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("SET allow_system_table_mods = on")
        connection.execute("ALTER VIEW pg_settings RENAME COLUMN sourcefile TO source_file")
    with pytest.raises(ConnectionProblem) as refused:
        look(ConnectionWords(conninfo(fresh_server), no_password=True))
    assert "does not show its parameters" in refused.value.message
    assert 'column "sourcefile" does not exist' in refused.value.message
    path = tmp_path / "seen.jsonl"
    assert run("record", "-q", "--seconds", "2", "-o", str(path), conninfo(fresh_server), home=tmp_path).status == 0
    for words in (("diff", str(path), str(path)), ("check", "--against", str(path), conninfo(fresh_server))):
        told = run(*words, home=tmp_path).err
        assert 'column "sourcefile" does not exist' in told, words
