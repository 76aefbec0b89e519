"""Files that commands write for their user hold query texts and names: nobody else reads them, at any umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.cli.commands.bench.results import check_directory, write_run
from pgtop_tune.cli.commands.recordings import ExportRequest, ReportRequest
from pgtop_tune.cli.commands.recordings.comparison import write_report
from pgtop_tune.cli.commands.recordings.export import export_recording
from tests.support import frames
from tests.support.recordings import HEADER, write
from tests.support.results import result


@pytest.fixture(autouse=True)
def umask_that_lets_everybody_in() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    header = replace(HEADER, created_ms=frames.EPOCH_MS)
    return write(tmp_path / "run.jsonl", (frames.frame(second, backends=2) for second in range(60)), header)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", ["a.html", "a.md", "a.csv", "a.csv.gz", "a.om", "a.parquet"])
@pytest.mark.parametrize("there", [False, True])
def test_reports_and_exports(recording: Path, tmp_path: Path, name: str, there: bool) -> None:
    path = tmp_path / name
    if there:
        path.write_text("old")
        path.chmod(0o666)
    if name.endswith((".html", ".md")):
        write_report(ReportRequest(files=[recording], output=path, force=there))
    else:
        export_recording(ExportRequest(files=[recording], output=path, force=there))
    assert path.stat().st_size > 100
    assert mode(path) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted({"run.jsonl", name, *beside(tmp_path)})


def beside(directory: Path) -> set[str]:
    """Indexes of recordings."""
    return {each.name for each in directory.iterdir() if each.name.endswith(".index")}


def test_records_of_runs(tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "today"
    check_directory(directory)
    write_run(directory, 1, result())
    assert mode(directory) == mode(directory.parent) == 0o700
    assert {each.suffix: mode(each) for each in directory.iterdir()} == {
        ".json": 0o600, ".stdout": 0o600, ".stderr": 0o600,
    }  # fmt: skip
