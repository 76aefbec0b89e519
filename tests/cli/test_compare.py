"""`compare` and `baseline` as a user runs them: what is printed, and exit statuses a pipeline can use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.model.run_result import as_json
from tests.cli.runs import run
from tests.support.results import result
from tests.support.sides import frames, noisy, on_machine, recorded


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recordings")
    recorded(frames(1000.0, "a", seconds=100), directory / "before.jsonl.gz")
    recorded(frames(940.0, "b", seconds=100), directory / "after.jsonl.gz")
    recorded(on_machine(frames(900.0, "b", seconds=20), cpu_count=64), directory / "elsewhere.jsonl")
    return directory


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories a and b with four runs each, B a tenth slower; measured in turn."""
    directory = tmp_path_factory.mktemp("runs")
    for number, name in enumerate("abbaabba"):
        tps = noisy(1000.0 if name == "a" else 900.0, f"{number}")
        made = result()
        lines = tuple(replace(line, tps=tps(int(line.elapsed_s))) for line in made.progress or ())
        made = replace(made, started_ms=number * 100_000, progress=lines)
        (directory / name).mkdir(exist_ok=True)
        (directory / name / f"{number}.json").write_text(json.dumps(as_json(made)))
    return directory


def test_it_says_what_changed_and_fails_where_it_was_asked_to(runs: Path, tmp_path: Path) -> None:
    ran = run("compare", str(runs / "a"), str(runs / "b"), "--fail-if", "tps < -5%", home=tmp_path)
    assert ran.status == 7, ran.err
    assert "--fail-if 'tps < -5%' holds: tps changed by -" in ran.err
    assert "fingerprint: identical" in ran.out
    (line,) = (line for line in ran.out.splitlines() if re.match("  tps +[0-9]", line))
    assert line.endswith("worse")
    assert "to a verdict" not in ran.out


def test_one_run_a_side_that_is_not_clear_says_how_to_go_on(files: Path, tmp_path: Path) -> None:
    words = ("compare", str(files / "before.jsonl.gz"), str(files / "after.jsonl.gz"))
    ran = run(*words, "--fail-if", "tps < -5%", home=tmp_path)
    assert ran.status == 0
    assert "runs with the same settings are assumed to differ by" in ran.out
    assert any(line.startswith("  tps ") and line.endswith("undecided") for line in ran.out.splitlines())
    (command,) = (line.strip() for line in ran.out.splitlines() if line.strip().startswith("for side in A B B A"))
    assert command.endswith("; done; pgtop-tune compare settle/A settle/B")


def test_a_condition_that_does_not_hold_is_no_failure(runs: Path, tmp_path: Path) -> None:
    words = ("compare", str(runs / "a"), str(runs / "b"), "--format", "json")
    ran = run(*words, "--fail-if", "tps < -30%", home=tmp_path)
    assert ran.status == 0
    found = json.loads(ran.out)
    (phase,) = found["comparisons"][0]["phases"]
    assert (phase["no_verdict"], phase["to_settle"]) == (None, [])
    (tps,) = (row for row in phase["figures"] if row["figure"] == "tps")
    assert tps["verdict"] == "worse"
    assert tps["low"] < tps["change"] < tps["high"] < 0
    assert [each["outcome"] for each in found["conditions"]] == ["does not hold"]


def test_another_machine_cannot_be_told(files: Path, tmp_path: Path) -> None:
    words = ("compare", str(files / "before.jsonl.gz"), str(files / "elsewhere.jsonl"))
    ran = run(*words, "--fail-if", "tps < -5%", "--format", "markdown", home=tmp_path)
    assert ran.status == 8
    assert "NOT COMPARABLE" in ran.out
    assert "CPUs differs: 4 and 64" in ran.out


def test_a_broken_contract_has_an_exit_status_and_its_reason(files: Path, tmp_path: Path) -> None:
    sides = str(files / "before.jsonl.gz"), str(files / "elsewhere.jsonl")
    ran = run("compare", "--as", "repeat", *sides, home=tmp_path)
    assert ran.status == 8
    assert "--as repeat: CPUs differs: A 4, B 64; use --as machine" in ran.err
    assert run("compare", "--as", "machine", *sides, home=tmp_path).status == 0


def test_two_windows_of_a_recording_are_compared_in_every_form(files: Path, tmp_path: Path) -> None:
    before = files / "before.jsonl.gz"
    words = ("compare", f"{before}@10s..50s", f"{before}@55s..+40s")
    text = run(*words, home=tmp_path)
    assert text.status == 0, text.err
    assert "largest effect first" in text.out
    assert "ms per transaction" in text.out
    markdown = run(*words, "--format", "markdown", home=tmp_path)
    assert "## differences" in markdown.out
    told = json.loads(run(*words, "--format", "json", home=tmp_path).out)
    (found,) = told["comparisons"]
    assert {row["name"] for row in found["differences"]} >= {"tps", "latency p99", "server.qps"}
    assert found["alike"] > 10


@pytest.mark.parametrize(
    ("words", "status"), [(("--fail-if", "tps"), 2), (("--under-test", "nothing"), 2), (("/etc/hostname",), 5)]
)
def test_words_and_files_that_are_none_are_told_apart(words: tuple[str, ...], status: int, tmp_path: Path) -> None:
    short = str(recorded(frames(seconds=3), tmp_path / "short.jsonl"))
    ran = run("compare", short, short, *words, home=tmp_path)
    assert ran.status == status
    assert "Traceback" not in ran.err
    assert "hint: " in ran.err


def test_a_baseline_is_saved_listed_and_checked(files: Path, tmp_path: Path) -> None:
    before = str(files / "before.jsonl.gz")
    saved = run("baseline", "save", "go-live", before, "--note", "new \x1b[31mdisks", home=tmp_path)
    assert saved.status == 0, saved.err
    words = ("baseline", "check", "go-live", str(files / "after.jsonl.gz"), "--save", "--fail-if", "tps < -5%")
    checked = run(*words, home=tmp_path)
    assert checked.status == 0, checked.err
    assert "are assumed to differ by" in checked.out
    again = run("baseline", "check", "go-live", str(files / "after.jsonl.gz"), home=tmp_path)
    assert "runs with the same settings differ by" in again.out
    listed = run("baseline", "list", "go-live", home=tmp_path)
    assert listed.out.count("go-live") == 2
    assert "\x1b" not in listed.out
