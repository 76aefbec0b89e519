"""Where to connect, found out by a child: the same answer as in this process, whatever becomes of the child."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runs import ROOT, environment

_ASKED = """
import json, os, signal, sys
from pgtop_tune.base.errors import PgtopError
from pgtop_tune.postgres.server import resolver
from pgtop_tune.base.secret import Secret

def told(asked):
    try:
        return repr(asked()), ""
    except PgtopError as problem:
        return type(problem).__name__, str(problem)

"""

_HELD = """
there = resolver.resolve
def held(*words, **more):
    open(os.environ["GATE"]).close()
    return there(*words, **more)
resolver.resolve = held
"""
"""A child that waits until somebody opens the gate."""


def told(script: str, home: Path, **variables: str) -> list[object]:
    """What a process without other threads prints: a child is forked only from such a one."""
    surroundings = environment(home, PGSYSCONFDIR=str(home), **variables)
    done = subprocess.run(
        [sys.executable, "-c", _ASKED + script], env=surroundings, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    "words",
    [
        {"target": "shop", "host": "db1,db2", "port": "6432", "user": "bench"},
        {"target": "postgresql://u:secret%20word@h/d?sslmode=require&target_session_attrs=primary"},
        {"target": "service=reports"},
        {"target": "host=/no/such user='o''brien' dbname='née'"},
        {"target": "service=unheard_of"},
        {"target": "postgresql://%zz"},
        {"port": "none", "host": "h"},
    ],
)
def test_the_child_s_answer_is_our_own_and_loads_no_driver(words: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "services").write_text("[reports]\nhost=db3\nport=7\nuser=reader\ndbname=mart\n")
    (tmp_path / "passwords").write_text("db1:*:*:*:of one\ndb2:*:*:*:of two\n")
    (tmp_path / "passwords").chmod(0o600)
    script = f"""
Secret.__repr__ = Secret.reveal
words = {words!r}
from_child = told(resolver.Resolving(**words).answer)
loaded = "psycopg" in sys.modules
print(json.dumps([loaded, from_child, told(lambda: resolver.resolve(**words))]))
"""
    loaded, from_child, here = told(
        script, tmp_path, PGSERVICEFILE=str(tmp_path / "services"), PGPASSFILE=str(tmp_path / "passwords")
    )
    assert not loaded
    assert from_child == here


def test_a_typed_password_gets_there_and_back(tmp_path: Path) -> None:
    script = """
found = resolver.Resolving("host=h user=u", password=Secret("typed")).answer()
print(json.dumps([found.password.reveal(), found.secrets["password"].reveal(), "psycopg" in sys.modules]))
"""
    assert told(script, tmp_path) == ["typed", "typed", False]


def test_a_child_that_was_killed_costs_nothing_but_memory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    script = f"""
{_HELD}
begun = resolver.Resolving("host=db3 user=reader")
pid = begun._child[0]
os.kill(pid, signal.SIGKILL)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
resolver.resolve = there
print(json.dumps([begun.answer().host]))
"""
    assert told(script, tmp_path, GATE=str(tmp_path / "gate")) == ["db3"]


def test_whoever_has_other_things_to_do_is_told_when_it_is_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    script = f"""
import select
{_HELD}
begun = resolver.Resolving("host=db3 user=reader")
early = begun.ready
open(os.environ["GATE"], "w").close()
select.select([begun._child[1]], [], [], 60)
print(json.dumps([early, begun.ready, begun.answer().host, begun.ready]))
"""
    assert told(script, tmp_path, GATE=str(tmp_path / "gate")) == [False, True, "db3", True]


def test_a_service_file_that_never_comes_ends_with_words(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    script = f"""
{_HELD}
resolver.DEADLINE_S = 1
begun = resolver.Resolving("service=reports")
pid = begun._child[0]
words = told(begun.answer)
try:
    os.waitpid(pid, 0)
except ChildProcessError:
    words += ("gone",)
print(json.dumps(words))
"""
    kind, words, child = told(script, tmp_path, GATE=str(tmp_path / "gate"))
    assert kind == "ConnectionProblem"
    assert "the connection options within 1 s" in str(words)
    assert "PGSERVICEFILE" in str(words)
    assert child == "gone"


def test_beside_other_threads_nothing_is_forked(tmp_path: Path) -> None:
    script = """
import threading
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
begun = resolver.Resolving("host=h user=u")
forked = begun._child is not None
found = begun.answer().host
stop.set()
print(json.dumps([forked, found]))
"""
    assert told(script, tmp_path) == [False, "h"]


def test_where_nobody_is_told_of_children_the_answer_comes_all_the_same(tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(json.dumps([resolver.Resolving("host=h user=u").answer().host, "psycopg" in sys.modules]))
"""
    assert told(script, tmp_path) == ["h", False]


def test_half_an_answer_is_none(tmp_path: Path) -> None:
    script = """
def cut(self):
    os.write(self.writing, b'{"endpoints": [')
    os.kill(os.getpid(), signal.SIGKILL)
pipe = os.pipe
def noted():
    ends = pipe()
    resolver.Resolving.writing = ends[1]
    return ends
resolver.os.pipe = noted
resolver.Resolving._said = cut
print(json.dumps([resolver.Resolving("host=h user=u").answer().host]))
"""
    assert told(script, tmp_path) == ["h"]
