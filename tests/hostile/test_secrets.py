"""A corpus of secrets in statements, errors, parameters and events: none of them leaves through any sink."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest
from msgspec import Struct

from pgtop_tune.base.secret import MASK
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.recording.reader import RecordingReader
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.processes import eventually
from tests.support.quick_server import quick_server
from tests.support.servers import NotAvailable, Servers, conninfo

SECRET: Final = "hunter2sesame"
SETTINGS: Final = {
    "primary_conninfo": f"host=primary password={SECRET}1 user=repl",
    "archive_cleanup_command": f"curl -u me:{SECRET}2 https://backup/%r",
    "restore_command": f"fetch --token={SECRET}3 %f %p",
    "recovery_end_command": f"AWS_SECRET_ACCESS_KEY={SECRET}4 tell",
}
STATEMENTS: Final = (
    f"ALTER ROLE carol PASSWORD '{SECRET}5'",
    f"CREATE ROLE dave ENCRYPTED /* of */ PASSWORD $$two {SECRET}6$$",
    f"SELECT 1 AS one WHERE 'host=h password=''{SECRET}7''' <> ''",
)
FAILING: Final = (
    f"SELECT 'postgresql://u:{SECRET}8@h/d'::int",
    f"SELECT 'password={SECRET}9'::int",
    f"ALTER ROLE nobody_there PASSWORD '{SECRET}10'",
)


class Recorded(Struct, frozen=True):
    """A server that was recorded while it saw the secrets.

    Attributes:
        home: Directory of the recordings.
        whole: With texts.
        without: With --no-query-text.
        scraped: A page of the endpoint, with statements.
    """

    server: Throwaway
    home: Path
    whole: Path
    without: Path
    scraped: str


@pytest.fixture(scope="module")
def recorded(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    home = tmp_path_factory.mktemp("secrets")
    try:
        binaries = servers.binaries(18)
    except NotAvailable as problem:
        pytest.skip(f"no PostgreSQL 18: {problem}")
    settings = {"logging_collector": "on", "shared_preload_libraries": "pg_stat_statements"}
    server = quick_server(binaries, **settings)
    try:
        with ExitStack() as stack:
            yield _record(server, home, stack)
    finally:
        server.stop("immediate")


def _record(server: Throwaway, home: Path, stack: ExitStack) -> Recorded:
    whole, without = home / "whole.jsonl", home / "without.jsonl.gz"
    sessions = [stack.enter_context(psycopg.connect(conninfo(server), autocommit=True)) for _ in STATEMENTS]
    sessions[0].execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    sessions[0].execute("CREATE ROLE carol")
    words = ("-q", "-i", "0.5", conninfo(server))
    started = [
        subprocess.Popen(
            [*PROGRAM, "record", "-o", str(path), *more, *words],
            stderr=subprocess.PIPE, text=True, env=environment(home), cwd=ROOT,
        )
        for path, more in ((whole, ("--openmetrics", "0", "--statements", "100")), (without, ("--no-query-text",)))
    ]  # fmt: skip
    try:
        assert started[0].stderr is not None
        url = next(line for line in started[0].stderr if "http" in line).split(": ", 1)[1].strip()
        assert eventually(lambda: _frames(whole) > 1 and _frames(without) > 1)
        for name, value in SETTINGS.items():
            sessions[0].execute(psycopg.sql.SQL("ALTER SYSTEM SET {} = {}").format(psycopg.sql.SQL(name), value))
        sessions[0].execute("SELECT pg_reload_conf()")
        for statement in FAILING:
            with suppress(psycopg.Error):
                sessions[0].execute(statement)
        for session, statement in zip(sessions, STATEMENTS, strict=True):
            session.execute(statement)
        seen = (
            "CREATE ROLE dave ENCRYPTED /* of */ PASSWORD ****",
            "type integer: ",
            "restore_command ",
            "ALTER ROLE carol",
        )
        assert eventually(lambda: all(word in whole.read_text() for word in seen))
        with urllib.request.urlopen(url, timeout=60) as answer:
            scraped = answer.read().decode()
    finally:
        for each in started:
            each.terminate()
            each.communicate(timeout=60)
    return Recorded(server, home, whole, without, scraped)


def _frames(path: Path) -> int:
    if not path.exists() or not path.stat().st_size:
        return 0
    with suppress(Exception):
        reader = RecordingReader(path)
        reader.close()
        return reader.frame_count
    return 0


def _texts(path: Path) -> dict[str, str]:
    """Every text of a recording, by where it stands."""
    reader = RecordingReader(path)
    try:
        frames = [frame for _, frame in reader.frames()]
    finally:
        reader.close()
    samples = [frame.postgres for frame in frames if not isinstance(frame.postgres, Unavailable)]
    return {
        "queries": "".join(str(getattr(each.activity, "backends", "")) for each in samples),
        "texts": "".join(str(each.statement_texts) for each in samples),
        "log": str(samples[-1].server_log),
        "parameters": str(samples[-1].parameters),
        "events": str([frame.events for frame in frames]),
    }


def test_a_recording_has_the_words_around_a_secret_and_not_the_secret(recorded: Recorded) -> None:
    assert SECRET not in recorded.whole.read_text()
    found = _texts(recorded.whole)
    assert f"ALTER ROLE carol PASSWORD {MASK}" in found["queries"]
    assert f"CREATE ROLE dave ENCRYPTED /* of */ PASSWORD {MASK}" in found["texts"]
    assert f'type integer: "postgresql://u:{MASK}@h/d"' in found["log"]
    for where in ("parameters", "events"):
        assert f"curl -u me:{MASK} https://backup/%r" in found[where]
        assert f"fetch --token={MASK} %f %p" in found[where]


def test_without_query_texts_no_command_of_the_server_is_recorded(recorded: Recorded) -> None:
    found = _texts(recorded.without)
    for where, text in found.items():
        for word in (SECRET, "curl", "--token", "ACCESS_KEY", "ALTER ROLE"):
            assert word not in text, where
    assert "restore_command changed" in found["events"]


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--lines", "{whole}"),
        ("compare", "{whole}", "{without}", "--under-test", "all"),
        ("compare", "{whole}", "{without}", "--under-test", "all", "--format", "json"),
        ("compare", "{whole}", "{without}", "--under-test", "all", "--format", "markdown"),
        ("report", "{whole}", "{without}", "-o", "{home}/report.html"),
        ("report", "{whole}", "{without}", "-o", "{home}/report.md"),
        ("diff", "{server}", "{without}"),
        ("export", "{whole}", "-o", "{home}/whole.csv"),
        ("export", "{whole}", "-o", "{home}/whole.om"),
        ("baseline", "save", "before", "{whole}"),
        *(("check", "-d", "{server}", "--format", kind) for kind in ("text", "json", "markdown", "script")),
    ],
    ids=lambda words: " ".join(words[:1] + words[-1:]),
)
def test_what_is_made_of_it_has_no_secret(recorded: Recorded, words: tuple[str, ...]) -> None:
    places = {
        "{whole}": str(recorded.whole), "{without}": str(recorded.without), "{server}": conninfo(recorded.server)
    }  # fmt: skip
    told = [places.get(word, word.replace("{home}", str(recorded.home))) for word in words]
    ran = run(*told, home=recorded.home)
    assert ran.status not in (2, 3), ran.err
    assert SECRET not in ran.out + ran.err
    for path in recorded.home.rglob("*"):
        if path.is_file() and path.suffix not in (".gz", ".zst"):
            assert SECRET.encode() not in path.read_bytes(), path


def test_the_endpoint_and_a_record_of_a_run_have_no_secret(recorded: Recorded, tmp_path: Path) -> None:
    assert "pgtop" in recorded.scraped
    assert SECRET not in recorded.scraped
    script = tmp_path / "failing.sql"
    script.write_text(f"SELECT 'password={SECRET}11'::int;\n")
    words = ("-f", str(script), "-c", "1", "-t", "1", "-D", f"token={SECRET}12", "--out", str(tmp_path / "out"))
    ran = run("bench", "run", *words, "-d", conninfo(recorded.server), home=tmp_path)
    written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert MASK in written, ran.err
    assert SECRET not in written + ran.out + ran.err
