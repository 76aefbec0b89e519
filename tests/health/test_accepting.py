"""Accepted risks: which findings they cover, until when, and what the project's file may say of them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.health.against import Former, only_new
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Severity, Unknown
from pgtop_tune.health.checks.schema import UNLOGGED
from pgtop_tune.health.conditions import found
from pgtop_tune.health.facts import Answers
from pgtop_tune.health.judge import judge
from pgtop_tune.health.project_file import AcceptedRisk, project_wishes, with_accepted
from pgtop_tune.health.questions import CatalogueCondition
from pgtop_tune.health.registry import by_id
from pgtop_tune.health.report import CheckOutcome, CheckResult, Report
from pgtop_tune.health.setup import CheckSetup
from tests.support.health_facts import spoilt

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ENTRY = '[[check.accept]]\ncheck = "key-03"\nreason = "as ordered"\nuntil = 2027-01-31\n'


def report() -> Report:
    """Two findings of one check, one of another, and a check that found nothing."""

    def check(id_: str) -> Check:
        return Check(id_, "g", "t", "Why.", "p.html", (), lambda facts, limits: (), Severity.HIGH)

    def finding(subject: str) -> CheckFinding:
        return CheckFinding(f"{subject} is bad", (Evidence("1", "v"),), Severity.HIGH, subject=subject)

    results = (
        CheckResult(check("AAA-01"), (finding("bench public.a"), finding("bench private.b"))),
        CheckResult(check("AAA-02"), (finding(""),)),
        CheckResult(check("AAA-03")),
    )
    return Report(round(NOW.timestamp() * 1000), "t", "PostgreSQL 18.1", 18, results)


def risk(check: str = "AAA-01", subject: str = "*", until: date = date(2026, 12, 31)) -> AcceptedRisk:
    return AcceptedRisk(check, subject, "a reason", until)


def test_a_pattern_covers_what_a_finding_is_about() -> None:
    found = with_accepted(report(), [risk(subject="bench public.*")])
    assert {finding.subject for _, finding in found.findings} == {"", "bench private.b"}
    assert [each.finding.subject for _, each in found.accepted] == ["bench public.a"]
    assert found.lapsed == ()
    assert found.results[0].outcome is CheckOutcome.FOUND


def test_a_check_whose_findings_are_all_accepted_has_not_passed() -> None:
    found = with_accepted(report(), [risk()])
    assert found.results[0].outcome is CheckOutcome.FOUND
    assert found.passed == 1


def test_until_is_the_last_day() -> None:
    assert with_accepted(report(), [risk(until=NOW.astimezone().date())]).lapsed == ()
    found = with_accepted(report(), [risk(until=date(2026, 11, 25))])
    assert found.accepted == ()
    assert len(found.findings) == 3
    assert found.lapsed == (("AAA-01", "accepted only until 2026-11-25: a reason"),)


def test_an_acceptance_that_covers_nothing_is_told() -> None:
    found = with_accepted(report(), [risk("AAA-03"), risk(subject="other*")])
    assert found.lapsed == (
        ("AAA-03", "the acceptance covers no finding: remove it from the file"),
        ("AAA-01", "the acceptance of 'other*' covers no finding: remove it from the file"),
    )
    # Of a check that is not made nothing can be said.
    assert with_accepted(report(), [risk("ZZZ-09")]).lapsed == ()


def unlogged(*tables: str, unlisted: int = 0) -> Report:
    """A report with one finding about unlogged tables of a database."""
    rows = [CatalogueCondition("unlogged", len(tables) + unlisted, ("public", name), "", "") for name in tables]
    (check, finding) = by_id("TAB-06"), found(UNLOGGED, "bench", rows)
    return replace(report(), results=(CheckResult(check, (finding,)),))


def test_single_objects_of_a_finding_are_accepted_and_the_rest_is_counted() -> None:
    """A pattern saw "bench unlogged" and no table of it."""
    shown = with_accepted(unlogged("cache_a", "cache_b", "orders", "people"), [risk("TAB-06", "bench public.cache_*")])
    ((_, rest),) = shown.findings
    assert rest.says.startswith("bench: 2 tables are unlogged (public.orders, public.people)")
    assert rest.says.endswith("; 2 of 4 accepted")
    assert rest.subject == "bench unlogged"
    assert rest.fix is not None
    assert "cache" not in rest.fix.do + rest.fix.undo + rest.evidence[0].says
    ((_, part),) = shown.accepted
    assert "2 tables are unlogged (public.cache_a, public.cache_b)" in part.finding.says
    assert part.finding.fix is not None
    assert "orders" not in part.finding.fix.do
    assert shown.lapsed == ()


def test_several_entries_may_share_the_objects_of_a_finding() -> None:
    risks = [
        risk("TAB-06", "bench public.a"),
        risk("TAB-06", "bench public.[ab]", date(2027, 1, 1)),
        risk("TAB-06", "bench public.c", date(2026, 1, 1)),
        risk("TAB-06", "bench public.z"),
    ]
    shown = with_accepted(unlogged("a", "b", "c"), risks)
    assert [each.until for _, each in shown.accepted] == [date(2026, 12, 31), date(2027, 1, 1)]
    ((_, rest),) = shown.findings
    assert rest.says.startswith("bench: table is unlogged (public.c)")
    assert rest.says.endswith("; 2 of 3 accepted")
    assert [said for _, said in shown.lapsed] == [
        "accepted only until 2026-01-01: a reason",
        "the acceptance of 'bench public.z' covers no finding: remove it from the file",
    ]


def test_a_finding_whose_objects_are_all_accepted_is_not_there_unless_some_are_not_listed() -> None:
    everything = risk("TAB-06", "bench public.*")
    shown = with_accepted(unlogged("a", "b"), [everything])
    assert (shown.findings, len(shown.accepted)) == ((), 1)
    ((_, rest),) = with_accepted(unlogged("a", "b", unlisted=3), [everything]).findings
    assert rest.says.startswith("bench: 3 tables are unlogged")
    assert rest.says.endswith("2 of 5 accepted")
    # The finding as a whole is accepted by its own name.
    assert with_accepted(unlogged("a", "b", unlisted=3), [risk("TAB-06", "bench unlogged")]).findings == ()


def test_what_is_left_of_a_finding_fits_the_server_as_the_whole_does() -> None:
    row = CatalogueCondition("unlogged", 2, ("public", "a"), "", "")
    rows = (("bench", row), ("bench", replace(row, name=("public", "b"))))
    facts = spoilt(server={"in_recovery": True}, answers={"check_relations": Answers(rows, ("bench",))})
    shown = with_accepted(judge([by_id("TAB-06")], facts), [risk("TAB-06", "bench public.a")])
    ((_, rest),) = shown.findings
    assert rest.fix is not None
    assert "run it on the primary" in rest.fix.remark


def written(directory: Path, text: str) -> Path:
    file = directory / "pgtop-tune.toml"
    file.write_text(text)
    return file


def test_the_file_has_a_check_a_reason_and_a_last_day(tmp_path: Path) -> None:
    [found] = project_wishes(written(tmp_path, ENTRY)).accept
    assert found == AcceptedRisk("KEY-03", "*", "as ordered", date(2027, 1, 31))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('reason = "as ordered"', "", "number 1: reason is missing"),
        ('reason = "as ordered"', 'reason = " "', "number 1: reason is missing"),
        ("until = 2027-01-31", "", "a day such as 2027-01-31"),
        ("2027-01-31", '"2027-01-31"', "a day such as 2027-01-31"),
        ("2027-01-31", "2027-01-31T12:00:00", "a day such as 2027-01-31"),
        ("until", "untill", "unknown key 'untill'"),
        ('"key-03"', "3", "check is missing"),
        ("[[check.accept]]", '[[check.accept]]\nsubject = ["a"]', "subject: expected a quoted pattern"),
        ("[[check.accept]]", "[check.accept]", "tables"),
    ],
)
def test_what_accepts_nothing_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        project_wishes(written(tmp_path, ENTRY.replace(old, new)))


def test_a_check_that_there_is_not_is_refused(tmp_path: Path) -> None:
    wishes = project_wishes(written(tmp_path, ENTRY.replace("key-03", "KEY-99")))
    with pytest.raises(UsageProblem, match="there is no check 'KEY-99'"):
        CheckSetup.of(wishes)


def test_a_check_that_did_not_see_everything_may_have_missed_what_is_accepted() -> None:
    before = report()
    blind = replace(before.results[2], unknowns=(Unknown("1 database was not seen"),))
    assert with_accepted(replace(before, results=(blind,)), [risk("AAA-03")]).lapsed == ()


def test_what_became_accepted_is_not_gone() -> None:
    before = report()
    former = Former("a.json", {(check.id, each.subject): (each.severity, each.says) for check, each in before.findings})
    shown = only_new(with_accepted(before, [risk(subject="bench public.*")]), former)
    assert (shown.gone_findings, shown.n_known, len(shown.accepted)) == ((), 2, 1)
