"""A former report leaves only what is new; a recording is checked as far as it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.health.against import is_recording, only_new, read_former_check, recorded_facts
from pgtop_tune.health.formats.writers import json_lines
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import CHECKS, chosen
from pgtop_tune.health.setup import CheckSetup
from pgtop_tune.model.absence import Reason, Unavailable
from tests.recording.test_recording_roundtrip import write
from tests.support.frames import frame
from tests.support.health_facts import spoilt

MEMORY = chosen(["MEM"], ["MEM-01"])


def _written(path: Path, **parameters: str) -> Path:
    path.write_text("\n".join(json_lines(judge(MEMORY, spoilt(parameters)))))
    return path


def test_only_what_is_new_or_worse_is_left(tmp_path: Path) -> None:
    former = read_former_check(_written(tmp_path / "a.json", work_mem="128MB", shared_buffers="7GB"))
    report = only_new(judge(MEMORY, spoilt({"shared_buffers": "10GB", "effective_cache_size": "1GB"})), former)
    # shared_buffers was a warning and is worse now, work_mem is mended, effective_cache_size is new.
    assert [check.id for check, _ in report.findings] == ["MEM-02", "MEM-05"]
    assert [id_ for id_, _ in report.gone_findings] == ["MEM-04"]
    assert report.n_known == 0


def test_what_is_the_same_is_known_and_has_not_passed(tmp_path: Path) -> None:
    former = read_former_check(_written(tmp_path / "a.json", work_mem="128MB"))
    report = only_new(judge(MEMORY, spoilt({"work_mem": "256MB"})), former)
    assert report.findings == ()
    assert report.n_known == 1
    assert report.passed == len(MEMORY) - 1


def test_what_goes_to_and_fro_beside_a_limit_is_not_gone(tmp_path: Path) -> None:
    """shared_buffers above 40 % of 16 GB is a finding."""
    former = read_former_check(_written(tmp_path / "a.json", shared_buffers="6656MB"))
    wanted = CheckSetup(MEMORY, {})
    for value, known, gone in (("6400MB", 1, []), ("5GB", 0, ["MEM-02"])):
        facts = spoilt({"shared_buffers": value})
        report = only_new(wanted.judged(facts), former, wanted.near(facts))
        assert (report.n_known, [id_ for id_, _ in report.gone_findings]) == (known, gone)


def test_what_is_unknown_now_is_not_gone(tmp_path: Path) -> None:
    former = read_former_check(_written(tmp_path / "a.json", shared_buffers="7GB"))
    blind = judge(MEMORY, spoilt(host=Unavailable(Reason.NOT_LOCAL, "elsewhere")))
    assert only_new(blind, former).gone_findings == ()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "other"}', "\x00\xff", '{"format": "pgtop-tune-check/1"}']
)
def test_a_file_that_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(text, encoding="latin-1")
    assert not is_recording(file)
    with pytest.raises(UsageProblem):
        read_former_check(file)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_recording_is_checked_as_far_as_it_goes(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, [frame(second) for second in range(5)])
    assert is_recording(path)
    facts = recorded_facts(path)
    assert [each.sequence for each in facts.frames] == [0, 4]
    report = judge(CHECKS, facts)
    reasons = {check.id: unknown.reason for check, unknown in report.unknowns}
    assert "not in a recording" in reasons["OS-01"]
    assert {"DISK-07", "OS-05"}.isdisjoint(reasons)


@pytest.mark.parametrize(
    ("content", "why"), [(b"{\xb5" * 5000, "it is not text"), (b"[1, 2]", "it lacks the fields of a report")]
)
def test_what_is_no_report_is_refused_in_words_of_ours(content: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(UsageProblem, match=f"neither a report nor a recording: {why}"):
        read_former_check(file)


def test_a_recording_without_the_server_is_refused(tmp_path: Path) -> None:
    away = Unavailable(Reason.NO_ANSWER, "down")
    path = write(tmp_path / "a.jsonl", [frame(0, postgres=away)])
    with pytest.raises(RecordingProblem):
        recorded_facts(path)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot be read"):
        is_recording(tmp_path / "none")
