"""Recordings without the words of statements: nothing of a user's data is in the file."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import Event, EventKind, LogLine, LogTail
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.model.statements import StatementText, StatementTexts
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.ports import Step
from tests.support.frames import EPOCH_MS, backend, frame

SECRET = "sesame-4711"


def told(second: int) -> Frame:
    """A frame in which a literal stands wherever a server lets one stand."""
    made = frame(second)
    assert isinstance(made.postgres, PostgresSample)
    assert isinstance(made.bench, BenchSample)
    activity = replace(
        made.postgres.activity,  # type: ignore[type-var]
        backends=(backend(1, EPOCH_MS, query=f"SELECT '{SECRET}'"),),
    )
    log = LogTail(float(second), "postgresql.log", 0, 0, (LogLine("1", "ERROR", "", f"key ({SECRET}) exists"),))
    server = replace(
        made.postgres,
        activity=activity,
        statement_texts=StatementTexts(float(second), (StatementText(7, f"ALTER ROLE x PASSWORD '{SECRET}'", 40),)),
        server_log=log,
    )
    bench = replace(made.bench, run=replace(made.bench.run, message=f"ERROR: no {SECRET}"))
    event = Event(EPOCH_MS, EventKind.AUTOVACUUM, "autovacuum", f"VACUUM {SECRET}")
    return replace(made, postgres=server, bench=bench, events=(event,))


def recorded(path: Path, *, query_text: bool) -> bytes:
    recorder = Recorder("bench", 1.0, query_text=query_text)
    recorder.start(str(path))
    for second in range(3):
        recorder.accept(Step((told(second),)))
    recorder.close()
    return path.read_bytes()


def test_no_literal_is_in_the_file(tmp_path: Path) -> None:
    assert SECRET.encode() in recorded(tmp_path / "with.jsonl", query_text=True)
    without = recorded(tmp_path / "without.jsonl", query_text=False)
    assert SECRET.encode() not in without
    assert not re.search(rb"SELECT|PASSWORD", without)


def test_everything_else_is_as_it_was(tmp_path: Path) -> None:
    recorded(tmp_path / "without.jsonl", query_text=False)
    reader = RecordingReader(tmp_path / "without.jsonl")
    read = [found for _, found in reader.frames()]
    assert reader.problems == []
    reader.close()
    whole = told(1)
    assert isinstance(read[1].postgres, PostgresSample)
    assert isinstance(whole.postgres, PostgresSample)
    assert read[1].host == whole.host
    assert read[1].postgres.database == whole.postgres.database
    assert read[1].postgres.parameters == whole.postgres.parameters
    assert read[1].events[0].text == "autovacuum"
