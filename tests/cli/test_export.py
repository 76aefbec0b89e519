"""`export`: words, files and what is told beside them."""

from __future__ import annotations

import csv
import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.cli.commands.recordings import ExportFormat, ExportRequest
from pgtop_tune.cli.commands.recordings.export import export_recording
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.export.pages import families
from tests.support import frames
from tests.support.recordings import HEADER, write

METRICS = ["server.tps", "up"]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five minutes, a frame a second."""
    path = tmp_path_factory.mktemp("recorded") / "run.jsonl.gz"
    header = replace(HEADER, created_ms=frames.EPOCH_MS)
    return write(path, (frames.frame(second, backends=2) for second in range(301)), header)


def seconds_in(path: Path) -> list[float]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        return [float(row["elapsed_s"]) for row in csv.DictReader(file)]


def test_the_name_of_the_file_says_what_is_written(recording: Path, tmp_path: Path) -> None:
    for name in ("a.csv", "a.csv.gz", "a.parquet", "a.om", "a.prom"):
        export_recording(ExportRequest(files=[recording], output=tmp_path / name, metrics=METRICS, until="5s"))
    assert len(seconds_in(tmp_path / "a.csv")) == 12
    assert seconds_in(tmp_path / "a.csv.gz") == seconds_in(tmp_path / "a.csv")
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").num_rows == 12
    assert set(families((tmp_path / "a.om").read_text())) == {"pgtop_up", "pgtop_server_transactions_per_second"}
    assert (tmp_path / "a.prom").read_text() == (tmp_path / "a.om").read_text()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("since", "until", "every", "moments"),
    [
        ("start", "3s", None, [0, 1, 2, 3]),
        ("2m", "+2s", None, [120, 121, 122]),
        ("-3s", "end", None, [297, 298, 299, 300]),
        ("3s ago", "-1s", None, None),
        ("4m", "end", "30s", [240, 270, 300]),
    ],
)
def test_moments_are_said_as_people_say_them(
    recording: Path, tmp_path: Path, since: str, until: str, every: str | None, moments: list[float] | None
) -> None:
    out = tmp_path / "a.csv"
    if moments is None:
        with pytest.raises(UsageProblem, match="is before"):
            export_recording(ExportRequest(files=[recording], output=out, since=since, until=until, every=every))
        return
    export_recording(
        ExportRequest(files=[recording], output=out, metrics=["up"], since=since, until=until, every=every)
    )
    assert seconds_in(out) == moments


def test_several_recordings_are_told_apart_in_every_tidy_format(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def elsewhere(second: int) -> Frame:
        facts = frames.facts(system_identifier="72")
        seen = frames.frame(second, postgres=frames.postgres_sample(second, server=facts))
        assert not isinstance(seen.host, Unavailable)
        assert not isinstance(seen.host.facts, Unavailable)
        return replace(seen, host=replace(seen.host, facts=replace(seen.host.facts, hostname="=db2")))

    other = write(tmp_path / "db2.jsonl", map(elsewhere, range(5)), replace(HEADER, created_ms=frames.EPOCH_MS))
    for name in ("a.csv", "a.json", "a.jsonl", "a.parquet", "wide.csv"):
        wide = name.startswith("wide")
        export_recording(
            ExportRequest(files=[recording, other], output=tmp_path / name, metrics=METRICS, until="3s", wide=wide)
        )
    with (tmp_path / "a.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    here = ("db1", frames.facts().system_identifier)
    assert list(dict.fromkeys((row["host"], row["cluster"]) for row in table)) == [here, ("'=db2", "72")]
    assert len(table) == 16
    as_array = json.loads((tmp_path / "a.json").read_text())
    assert as_array == [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(row["metric"], row["host"]) for row in as_array] == [(row["metric"], row["host"]) for row in table]
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()[-1]["cluster"] == "72"
    with (tmp_path / "wide.csv").open(newline="") as file:
        assert [row["cluster"] for row in csv.DictReader(file)] == [here[1]] * 4 + ["72"] * 4
    with pytest.raises(UsageProblem, match="takes one recording"):
        export_recording(ExportRequest(files=[recording, other], output=tmp_path / "a.om"))
    with pytest.raises(UsageProblem, match="is one of the recordings"):
        export_recording(ExportRequest(files=[other], output=other, force=True))


def test_a_database_for_duckdb_has_the_same_rows_where_the_library_is_there(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "duckdb", None)
        with pytest.raises(UsageProblem, match="duckdb, which is not installed"):
            export_recording(ExportRequest(files=[recording], output=tmp_path / "a.duckdb"))
    assert not list(tmp_path.iterdir())
    duckdb = pytest.importorskip("duckdb")
    export_recording(ExportRequest(files=[recording], output=tmp_path / "a.duckdb", metrics=METRICS, until="3s"))
    with duckdb.connect(str(tmp_path / "a.duckdb"), read_only=True) as database:
        rows = database.execute("SELECT count(*), count(value), count(reason), min(host) FROM metrics").fetchone()
    assert rows == (8, 7, 1, "db1")
    assert [path.name for path in tmp_path.iterdir()] == ["a.duckdb"]


def test_a_file_that_is_there_is_left_alone_and_one_that_failed_is_not_there(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    out.write_text("mine")
    with pytest.raises(UsageProblem, match="already exists"):
        export_recording(ExportRequest(files=[recording], output=out))
    with pytest.raises(UsageProblem, match="no metric matches"):
        export_recording(ExportRequest(files=[recording], output=out, force=True, metrics=["server.tsp"]))
    assert out.read_text() == "mine"
    export_recording(ExportRequest(files=[recording], output=out, force=True, metrics=METRICS, until="1s"))
    assert len(seconds_in(out)) == 4
    with pytest.raises(UsageProblem, match="cannot be written: No such file"):
        export_recording(ExportRequest(files=[recording], output=tmp_path / "away" / "a.csv"))
    with pytest.raises(RecordingProblem):
        export_recording(ExportRequest(files=[out], output=tmp_path / "b.csv"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.csv"]


@pytest.mark.parametrize(
    ("format", "name", "wide", "words"),
    [
        (None, "a.txt", False, "has no known extension"),
        (ExportFormat.PARQUET, "a.csv", True, "--wide applies to CSV"),
        (ExportFormat.PARQUET, None, False, "Parquet needs an output file"),
    ],
)
def test_words_that_do_not_go_together_are_refused(
    recording: Path, tmp_path: Path, format: ExportFormat | None, name: str | None, wide: bool, words: str
) -> None:
    with pytest.raises(UsageProblem, match=words):
        export_recording(
            ExportRequest(files=[recording], format=format, output=tmp_path / name if name else None, wide=wide)
        )


def test_without_pyarrow_it_says_how_to_have_it(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageProblem) as problem:
        export_recording(ExportRequest(files=[recording], output=tmp_path / "a.parquet"))
    assert "pip install pyarrow" in problem.value.hint
    assert not (tmp_path / "a.parquet").exists()


def test_a_torn_recording_is_exported_up_to_there_and_says_so(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = tmp_path / "torn.jsonl"
    lines = gzip.decompress(recording.read_bytes()).splitlines(keepends=True)
    torn.write_bytes(b"".join(lines[:30]) + b'{"delta":{"sequence":"\xff' + b"".join(lines[31:62]))
    export_recording(ExportRequest(files=[torn], output=tmp_path / "a.csv", metrics=["up"]))
    assert seconds_in(tmp_path / "a.csv")[:29] == list(range(29))
    assert "torn.jsonl: line 31:" in capsys.readouterr().err
    export_recording(ExportRequest(files=[torn], output=tmp_path / "wide.csv", metrics=["up"], wide=True))
    assert capsys.readouterr().err.count("line 31:") == 1
    torn.write_bytes(lines[0])
    with pytest.raises(RecordingProblem, match="holds no frames"):
        export_recording(ExportRequest(files=[torn], output=tmp_path / "b.csv", metrics=["up"]))
    assert not (tmp_path / "b.csv").exists()


def test_without_a_file_the_table_is_on_stdout_alone(recording: Path, tmp_path: Path) -> None:
    done = run("export", str(recording), "--metrics", "up", "--from", "-2s", home=tmp_path)
    assert (done.status, done.err) == (0, "3 rows\n")
    assert [line.split(",")[1:5] for line in done.out.splitlines()[1:]] == [
        [f"{second}.0", "up", "", "1"] for second in (298, 299, 300)
    ]


def test_an_export_that_is_ended_leaves_no_file(recording: Path, tmp_path: Path) -> None:
    words = [*PROGRAM, "export", str(recording), "-o", str(tmp_path / "out" / "a.csv")]
    (tmp_path / "out").mkdir()
    started = subprocess.Popen(words, env=environment(tmp_path), cwd=ROOT, stderr=subprocess.PIPE)
    deadline_s = time.monotonic() + 60
    while not list((tmp_path / "out").iterdir()):
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    started.terminate()
    started.communicate(timeout=60)
    assert started.returncode == 128 + signal.SIGTERM
    assert not list((tmp_path / "out").iterdir())


def test_a_stdout_that_is_full_is_told_in_one_sentence(recording: Path, tmp_path: Path) -> None:
    words = [*PROGRAM, "export", str(recording), "--metrics", "up"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words, env=environment(tmp_path), cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "pgtop-tune: stdout cannot be written: No space left on device",
        "hint: pass -o FILE to write to a file",
    ]


def test_a_dash_is_stdout_and_a_device_is_written_to_and_not_replaced(recording: Path, tmp_path: Path) -> None:
    words = ("export", str(recording), "--metrics", "up", "--until", "2s")
    plain = run(*words, home=tmp_path)
    for output in ("-", "/dev/stdout"):
        assert run(*words, "-o", output, home=tmp_path) == plain
    assert not (ROOT / "-").exists()
    null = tmp_path / "null.csv"
    null.symlink_to("/dev/null")
    assert run(*words, "--force", "-o", str(null), home=tmp_path).status == 0
    assert null.is_symlink()
    assert Path("/dev/null").is_char_device()
    report = run("report", str(recording), "-o", "-", home=tmp_path)
    assert report.status == 0, report.err
    assert report.out.startswith("<!doctype html>")


def test_a_window_behind_the_end_has_no_rows(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="the recording has no frames after 1h") as refused:
        export_recording(ExportRequest(files=[recording], output=tmp_path / "a.csv", metrics=METRICS, since="1h"))
    assert "5m" in refused.value.hint
    assert not (tmp_path / "a.csv").exists()
