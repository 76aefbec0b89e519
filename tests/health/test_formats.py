"""Reports in every format: complete, well-formed, and safe whatever names databases have."""

from __future__ import annotations

import json
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.cli.output import whole
from pgtop_tune.health.against import only_new, read_former_check
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Fix, Severity, Unknown
from pgtop_tune.health.formats.for_people import markdown_lines, summary, text_lines
from pgtop_tune.health.formats.script import script_lines
from pgtop_tune.health.formats.writers import (
    WRITERS,
    ReportOptions,
    json_document,
    json_lines,
)
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.report import Accepted, CheckOutcome, CheckResult, Report
from pgtop_tune.model.setup import MeasuredLimit
from tests.support.health_facts import spoilt
from tests.support.report_formats import report_mistakes

HOSTILE = "a]]>&<b>\x1b[31m|`*[x](http://evil)\u202e\x00\ud800\ufffe"


def _check(id_: str, group: str = "memory") -> Check:
    return Check(id_, group, "a title", "A sentence.", "page.html", (), lambda facts, limits: (), Severity.HIGH)


def _finding(severity: Severity, says: str = "found", subject: str = "") -> CheckFinding:
    return CheckFinding(
        says, (Evidence("1 of 2", "view.column"),), severity, Fix("DO 1;\nDO 2;", "UNDO;", remark="later"),
        subject=subject,
    )  # fmt: skip


def report(*results: CheckResult, **other: Any) -> Report:
    values: dict[str, Any] = {
        "at_ms": 1_794_000_000_000, "target": "u@h:5432/d", "server": "PostgreSQL 18.1", "major": 18,
        "results": results,
    }  # fmt: skip
    return Report(**(values | other))


MIXED = report(
    CheckResult(_check("AAA-01"), (_finding(Severity.INFO),)),
    CheckResult(_check("AAA-02"), unknowns=(Unknown("the role may not see it"),)),
    CheckResult(_check("AAA-03")),
    CheckResult(
        _check("BBB-01", "disks"),
        (_finding(Severity.CRITICAL, "worst"), _finding(Severity.WARNING, "mild", "db t")),
        (Unknown("1 database was not seen"),),
    ),
    ceilings=(
        MeasuredLimit("wal-flushes", "the WAL device flushes 1940 times a second", 1940.0, "1/s", "pg_test_fsync"),
    ),
    not_measured=(("timer", "no pg_test_timing"),),
)
NASTY = report(
    CheckResult(_check("AAA-01"), (_finding(Severity.HIGH, HOSTILE, HOSTILE),), (Unknown(HOSTILE),)), target=HOSTILE
)


ACCEPTED = report(
    CheckResult(
        _check("AAA-01"), accepted=(Accepted(_finding(Severity.HIGH, "one disk", "db t"), HOSTILE, date(2027, 1, 31)),)
    ),
    lapsed=(("AAA-01", f"accepted only until 2026-01-31: {HOSTILE}"),),
)


REPORTS = pytest.mark.parametrize(
    "shown",
    [MIXED, NASTY, ACCEPTED, report(), judge(CHECKS, spoilt())],
    ids=["mixed", "nasty", "accepted", "none", "all"],
)


def test_text_has_the_worst_first_and_counts_what_is_unknown() -> None:
    lines = text_lines(MIXED)
    assert [line.split()[0] for line in lines[1:4]] == ["critical", "warning", "info"]
    assert "found: 1 critical, 1 warning, 1 info · unknown: 2 · passed: 1" in lines[-1]
    assert len(lines) == 7


def test_all_of_it_is_there_with_details() -> None:
    said = "\n".join(text_lines(MIXED, everything=True))
    for words in ("why ", "1 of 2 [view.column]", "DO 1;", "DO 2;", "UNDO;", "later", "docs/18/page.html",
                  "the role may not see it", "passed    AAA-03", "1940 times", "no pg_test_timing"):  # fmt: skip
        assert words in said


@REPORTS
def test_json_fits_the_schema_that_is_shipped(shown: Report) -> None:
    parsed = json.loads("\n".join(json_lines(replace(shown))))
    assert report_mistakes(parsed) == []


def test_the_schema_refuses_what_is_no_report() -> None:
    parsed = json_document(MIXED)
    assert report_mistakes({**parsed, "more": 1})
    assert report_mistakes({**parsed, "format": "other"})
    assert report_mistakes({**parsed, "findings": [{**parsed["findings"][0], "severity": "bad"}]})
    assert report_mistakes({**parsed, "findings": [{**parsed["findings"][0], "evidence": []}]})


def test_every_finding_and_every_unknown_is_in_the_json() -> None:
    parsed = json_document(MIXED)
    assert [each["severity"] for each in parsed["findings"]] == ["critical", "warning", "info"]
    assert parsed["summary"]["found"] == {"critical": 1, "high": 0, "warning": 1, "info": 1}
    assert (parsed["summary"]["unknown"], len(parsed["unknown"]), parsed["passed"]) == (2, 2, ["AAA-03"])


def test_a_name_is_the_same_in_json_and_in_the_server(tmp_path: Path) -> None:
    """Else the next check would find it anew."""
    shown = report(CheckResult(_check("AAA-01"), (_finding(Severity.HIGH, "found", "ж\u2028\x9b\u202e"),)))
    file = tmp_path / "a.json"
    file.write_text("\n".join(map(whole, json_lines(shown))))
    assert only_new(shown, read_former_check(file)).n_known == 1
    other = replace(shown, identity=(("system identifier", "2"),))
    file.write_text("\n".join(json_lines(replace(shown, identity=(("system identifier", "1"),)))))
    assert only_new(other, read_former_check(file)).compared_with == f"{file}, a check of another server (u@h:5432/d)"


def test_markdown_keeps_foreign_text_from_being_markup() -> None:
    said = "\n".join(markdown_lines(NASTY))
    assert "<b>" not in said.replace("\\<b\\>", "")
    assert "](http://evil" not in said.replace("\\](", "")
    quoted = replace(_finding(Severity.HIGH), fix=Fix('DROP INDEX "```";', ""))
    assert '````sql\nDROP INDEX "```";\n````' in "\n".join(
        markdown_lines(report(CheckResult(_check("AAA-01"), (quoted,))))
    )


@pytest.mark.parametrize("format_", WRITERS)
def test_no_format_lets_foreign_text_reach_a_terminal_as_it_is(format_: str) -> None:
    said = "\n".join(WRITERS[format_](NASTY, ReportOptions(True, Severity.INFO)))
    assert not set(said) & set("\x1b\x00")
    if format_ == "json":
        assert json.loads(said)


def _sets(parameter: tuple[str, str], severity: Severity, of_machine: bool = False) -> CheckFinding:
    fix = Fix("DO;", "UNDO;", parameter=parameter, of_machine=of_machine)
    return replace(_finding(severity, f"{parameter[0]} is wrong"), fix=fix)


def test_lines_are_broken_for_a_terminal_and_commands_are_not() -> None:
    long = "word " * 40
    finding = replace(
        _finding(Severity.HIGH, long), evidence=(Evidence(long, "view.column"),),
        fix=Fix(f"ALTER SYSTEM SET x = '{'y ' * 60}';", "UNDO;", remark=long),
    )  # fmt: skip
    said = text_lines(report(CheckResult(_check("AAA-01"), (finding,))), everything=True, width=80)
    commands = [line for line in said if "ALTER SYSTEM" in line]
    assert len(commands) == 1
    assert len(commands[0]) > 120
    assert all(len(line) <= 80 for line in said if line not in commands)
    row = next(place for place, line in enumerate(said) if line.startswith("high"))
    assert said[row + 1].startswith(" " * 20 + "word")
    assert " ".join(" ".join(said).split()).count("word") == 3 * 40


@pytest.mark.parametrize("format_", ["text", "markdown", "script"])
def test_blanks_of_a_quoted_name_stay_in_a_command(format_: str) -> None:
    named = replace(_finding(Severity.HIGH), fix=Fix('DROP INDEX "two  blanks";', ""))
    said = WRITERS[format_](report(CheckResult(_check("AAA-01"), (named,))), ReportOptions(True, Severity.WARNING))
    assert any('DROP INDEX "two  blanks";' in line for line in said)


def test_the_script_sets_parameters_as_one_set_and_runs_nothing_else() -> None:
    said = script_lines(
        report(
            CheckResult(_check("AAA-01"), (_sets(("work_mem", "8MB"), Severity.WARNING),)),
            CheckResult(
                _check("AAA-02"), (_sets(("work_mem", "4MB"), Severity.HIGH), _finding(Severity.HIGH, HOSTILE))
            ),
            CheckResult(_check("AAA-03"), (_sets(("search_path", "a'; rm -rf /"), Severity.WARNING),)),
            CheckResult(_check("BBB-01"), (_sets(("vm.swappiness", "5"), Severity.WARNING, of_machine=True),)),
            CheckResult(_check("BBB-02"), (_sets(("archive_mode", "on"), Severity.INFO),)),
        ),
        Severity.WARNING,
    )
    runs = [line for line in said if line and not line.startswith("#")]
    assert [shlex.split(line) for line in runs] == [
        ["set", "-eu"],
        ["pgtop-tune", "set", "work_mem=4MB", "search_path=a'; rm -rf /", "--reason", "pgtop-tune check", "$@"],
        ["pgtop-tune", "set", "vm.swappiness=5", "--persist", "--reason", "pgtop-tune check", "$@"],
    ]
    assert any("work_mem=8MB is left out" in line for line in said)
    assert "#   DO 1;" in said


def test_a_script_without_findings_changes_nothing() -> None:
    assert [line for line in script_lines(report(), None) if not line.startswith("#")] == ["set -eu"]


def test_a_check_with_known_findings_has_not_passed() -> None:
    assert CheckResult(_check("AAA-01"), n_known=1).outcome is CheckOutcome.FOUND


def test_several_warnings_are_warnings() -> None:
    mild = (_finding(Severity.WARNING), _finding(Severity.WARNING), _finding(Severity.INFO), _finding(Severity.INFO))
    assert summary(report(CheckResult(_check("AAA-01"), mild))).startswith("found: 2 warnings, 2 info · ")


def test_what_is_accepted_is_shown_and_counted_and_fails_nothing() -> None:
    lines = text_lines(ACCEPTED)
    assert lines[1].startswith("accepted  AAA-01    high, db t: one disk · ")
    assert lines[1].endswith(", until 2027-01-31")
    assert lines[2].startswith("accepted  AAA-01    no longer: accepted only until 2026-01-31: ")
    assert lines[-1].startswith("found: nothing · accepted: 1 · unknown: 0 · passed: 0")
    assert "| high | AAA-01 | db t: one disk |" in "\n".join(markdown_lines(ACCEPTED))
    document = json_document(ACCEPTED)
    assert (document["summary"]["accepted"], document["findings"], document["passed"]) == (1, [], [])
    assert document["accepted"][0]["until"] == "2027-01-31"
    assert ACCEPTED.at_least(Severity.INFO) == 0


def test_unknown_checks_of_one_cause_are_one_line() -> None:
    """Young counters differ in their numbers, and one right opens several questions."""
    reasons = {
        "AAA-01": "the counters are 4.1 s old: too young for a result",
        "AAA-02": "backups: no rights; GRANT pg_monitor TO u",
        "AAA-03": "the counters are 9 s old: too young for a result",
        "AAA-04": "queue: denied; GRANT pg_monitor TO u",
        "AAA-05": "not measured: pass --measure",
        "AAA-06": "the counters are 1 min old: too young for a result",
    }
    shown = report(*(CheckResult(_check(id_), unknowns=(Unknown(why),)) for id_, why in reasons.items()))
    assert [cause.ids for cause in shown.unknown_causes] == ["AAA-01, AAA-03, AAA-06", "AAA-02, AAA-04", "AAA-05"]
    lines = [line for line in text_lines(shown, everything=True) if line.startswith("unknown")]
    assert lines == [
        "unknown   3 checks  the counters are 4.1 s old: too young for a result (AAA-01, AAA-03, AAA-06)",
        "unknown   2 checks  backups: no rights; GRANT pg_monitor TO u (AAA-02, AAA-04)",
        "unknown   AAA-05    a title: not measured: pass --measure",
    ]
    assert "unknown: 6" in text_lines(shown)[-1]


@pytest.mark.parametrize("name", [*WRITERS])
def test_what_is_accepted_and_what_is_no_longer_so_stands_in_every_format(name: str) -> None:
    lapsed = (("AAA-01", "accepted only until 2026-01-31: a reason"),)
    accepted = Accepted(_finding(Severity.HIGH, "one disk"), "until the new server", date(2027, 1, 31))
    shown = report(CheckResult(_check("AAA-01"), accepted=(accepted,)), lapsed=lapsed)
    said = "\n".join(WRITERS[name](shown, ReportOptions(details=False, fail_on=Severity.WARNING))).replace("\\", "")
    for words in ("until the new server", "2027-01-31", "accepted only until 2026-01-31"):
        assert words in said, words
