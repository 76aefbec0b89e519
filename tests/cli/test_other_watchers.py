"""Other instances of this program are no load and no sessions of the list."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg

from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.metrics import sections, server
from pgtop_tune.metrics.active_sessions import sessions
from pgtop_tune.model.postgres import Activity
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.processes import eventually
from tests.support.recordings import read

WATCHING = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pgtop-tune'"


def test_three_viewers_of_an_idle_server_leave_it_idle(database: str, tmp_path: Path) -> None:
    """Three gave 48 transactions a second to an idle server, and headed the list of its sessions.

    Nor is a look that cannot end, as where it waits for a file system, an active session for ever.
    """
    words = [*PROGRAM, "record", "-q", "--seconds", "90", database]
    others = [
        subprocess.Popen([*words, "-o", str(tmp_path / f"{n}.jsonl")], env=environment(tmp_path), cwd=ROOT)
        for n in range(2)
    ]
    hanging = psycopg.connect(database, autocommit=True, application_name="pgtop-tune")
    hanging.pgconn.send_query(b"SELECT /* pgtop-tune */ pg_sleep(600)")
    try:
        with psycopg.connect(database, autocommit=True) as session:
            assert eventually(lambda: len(session.execute(WATCHING).fetchall()) >= 3)
        ran = run("record", "-q", "-o", str(tmp_path / "own.jsonl"), "--seconds", "8", database, home=tmp_path)
        assert ran.status == 0, ran.err
    finally:
        hanging.cancel()
        hanging.close()
        for other in others:
            other.kill()
            other.wait()
    watched, diagnosing = Session(), Diagnoser()
    frames, _ = read(tmp_path / "own.jsonl")
    for frame in frames:
        watched.apply(Step((frame,)))
        assert watched.interval is not None
        first = diagnosing.look(watched.interval).first
    activity = sections.activity(frames[-1])
    assert isinstance(activity, Activity)
    assert activity.own_backends >= 4
    assert not [row for row in activity.backends if row.application_name == "pgtop-tune"]
    assert watched.interval is not None
    waited = sessions(watched.interval, 10.0) or []
    assert not [one for one in waited if one.kind.backend_type == "client backend" and not one.kind.of_load]
    tps = server.TPS(watched.interval.over(4.0))
    assert tps is not None
    assert tps < 14.0
    assert first.rule == "none"
