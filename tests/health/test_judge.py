"""The framework: what is missing is unknown, refusals are told, young statistics lower the confidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckConfidence, CheckFinding, Evidence, Limits, Threshold, Unknown
from pgtop_tune.health.facts import Answers, CheckFacts, Question, Refused
from pgtop_tune.health.judge import judge, statistics_age_s
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.report import CheckOutcome, documentation
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import NEWEST_MAJOR, PostgresSample
from tests.support import frames
from tests.support.health_facts import EPOCH_MS, result, spoilt, unknown


@dataclass(frozen=True)
class Row:
    name: str


QUESTION = Question("check_made_up", Row, "a view", everywhere=True)


def _look(facts: CheckFacts, limits: Limits) -> Iterator[CheckFinding | Unknown]:
    for database, row in facts.have(QUESTION):
        if limits["most"] < 1:
            yield CheckFinding(row.name, (Evidence("1", "x"),), subject=database)


CHECK = Check(
    "XXX-01", "made up", "made up", "Because.", "page.html", (QUESTION,), _look,
    thresholds=(Threshold("most", 0, "", ""),), counts=True,
)  # fmt: skip


def _facts(answer: Answers[Row] | Unavailable, **other: object) -> CheckFacts:
    return spoilt(answers={"check_made_up": answer}, **other)  # type: ignore[arg-type]


def test_rows_become_findings_and_databases_that_refuse_are_unknown_beside_them() -> None:
    refused = tuple(Refused(f"db{number}", "no entry in pg_hba.conf") for number in range(5))
    said = result(CHECK, _facts(Answers((("shop", Row("t")),), ("shop",), refused)))
    assert [finding.subject for finding in said.findings] == ["shop"]
    (reason,) = [each.reason for each in said.unknowns]
    assert reason == "5 databases were not seen: db0 and 4 more: no entry in pg_hba.conf"
    assert said.outcome is CheckOutcome.FOUND


def test_databases_that_refuse_are_counted_by_reason_those_of_most_first() -> None:
    refused = (
        Refused("a", "no"), Refused("b", 'permission denied for database "b"'), Refused("c", "asleep"),
        Refused("d", 'permission denied for database "d"'), Refused("e", "away"), Refused("f", "gone"),
    )  # fmt: skip
    (reason,) = [each.reason for each in result(CHECK, _facts(Answers((), ("shop",), refused))).unknowns]
    assert reason == (
        '6 databases were not seen: b and 1 more: permission denied for database "b"; a: no; c: asleep; '
        "2 for other reasons"
    )


def test_a_question_without_an_answer_is_unknown() -> None:
    (said,) = unknown(CHECK, _facts(Unavailable(Reason.NO_PERMISSION, "permission denied")))
    assert "permission denied" in said.reason
    (said,) = unknown(CHECK, spoilt())
    assert "not asked" in said.reason


def test_what_keeps_several_parts_of_the_facts_away_is_one_line() -> None:
    full = Unavailable(Reason.NO_ANSWER, "too many clients already")
    asked = {question.name: full for check in CHECKS for question in check.needs if isinstance(question, Question)}
    shown = judge(CHECKS, replace(spoilt(), answers=asked))
    (cause,) = [each for each in shown.unknown_causes if "too many clients" in each.reason]
    assert len(cause.checks) > 20
    assert cause.reason == str(full)


def test_a_refusal_alone_is_never_a_pass() -> None:
    said = result(CHECK, _facts(Answers((), ("a",), (Refused("b", "no"),))))
    assert said.outcome is CheckOutcome.UNKNOWN


def test_a_fact_that_is_missing_while_looking_makes_it_unknown() -> None:
    asks = replace(CHECK, needs=())
    (said,) = unknown(asks, spoilt())
    assert said.reason == "made up: not asked"


def test_statistics_younger_than_a_day_lower_the_confidence() -> None:
    answer = Answers((("shop", Row("t")),), ("shop",))
    old = _facts(answer)
    age_s = statistics_age_s(old)
    assert age_s is not None
    assert age_s >= 86_400
    seen = frames.postgres_sample(101, 4).wal
    assert not isinstance(seen, Unavailable)
    young = _facts(answer, postgres={"wal": replace(seen, stats_reset_ms=EPOCH_MS - 3_600_000)})
    restarted = _facts(answer, server={"started_ms": EPOCH_MS - 3_600_000})
    assert statistics_age_s(restarted) == age_s
    assert result(CHECK, old).findings[0].confidence is CheckConfidence.HIGH
    assert result(CHECK, young).findings[0].confidence is CheckConfidence.MEDIUM
    assert result(replace(CHECK, counts=False), young).findings[0].confidence is CheckConfidence.HIGH


def test_the_age_is_not_known_without_the_server() -> None:
    facts = spoilt()
    last = replace(facts.frames[-1], postgres=PostgresSample())
    assert statistics_age_s(replace(facts, frames=(last,))) is None


def test_a_report_names_server_and_major_and_documentation_follows_it() -> None:
    said = judge(CHECKS[:1], spoilt(major=15))
    assert (said.server, said.major) == ("PostgreSQL 15.1", 15)
    assert documentation(CHECKS[0], 15).startswith("https://www.postgresql.org/docs/15/")
    assert "/devel/" in documentation(CHECKS[0], NEWEST_MAJOR + 1)
    assert "/current/" in documentation(CHECKS[0], None)


def test_every_row_of_the_registry_is_complete() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.why.endswith("."), check.id
        assert check.needs, check.id
        assert ".html" in check.page, check.id
        names = [threshold.name for threshold in check.thresholds]
        assert len(set(names)) == len(names), check.id


def test_parameters_have_their_unit() -> None:
    server = needs.parameters(spoilt({"shared_buffers": "128MB", "work_mem": "4MB", "autovacuum_work_mem": "-1"}))
    assert server.number("shared_buffers") == 128 * 1024 * 1024
    assert server.number("work_mem") == 4 * 1024 * 1024
    assert server.number("autovacuum_work_mem") == -1
