"""Several servers in one table, and several looks as one report."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, UsageProblem
from pgtop_tune.cli.commands.check import CheckRequest, ReportFormat
from pgtop_tune.cli.commands.check import report as check_report
from pgtop_tune.cli.commands.check.report import check_all, servers_of, worst_status
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.formats.writers import WRITERS, ReportOptions
from pgtop_tune.health.looks import (
    AT_ONCE,
    LookSeries,
    ServerResult,
    check_servers,
    servers_document,
    servers_lines,
    table_lines,
)
from pgtop_tune.health.project_file import AcceptedRisk, ProjectWishes
from pgtop_tune.health.report import CheckResult, Report
from pgtop_tune.health.setup import CheckSetup
from pgtop_tune.postgres.server.conninfo import ConnInfo
from tests.cli.runs import run
from tests.export.pages import values
from tests.health.test_formats import ACCEPTED, HOSTILE, MIXED, NASTY, _check, _finding, report
from tests.support.health_facts import spoilt
from tests.support.servers import conninfo

GONE = ConnectionProblem("nothing is listening on this socket")


async def test_a_few_are_looked_at_at_a_time_and_one_that_is_away_is_a_result() -> None:
    under_way = most = 0

    async def look(name: str) -> Report:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        under_way -= 1
        if name == "s3":
            raise GONE
        return MIXED

    told: list[str] = []
    names = [f"s{number}" for number in range(9)]
    found = await check_servers(names, look, lambda result: told.append(result.name))
    assert most == AT_ONCE
    assert [result.name for result in found] == names
    assert sorted(told) == names
    assert [result.name for result in found if result.report is None] == ["s3"]


def test_a_row_has_the_counts_and_the_worst() -> None:
    lines = table_lines([ServerResult("a", MIXED), ServerResult("b", problem=GONE), ServerResult("c", ACCEPTED)])
    assert lines[0].split() == [
        "server", "PostgreSQL", "critical", "high", "warning", "info", "accepted", "unknown", "worst",
    ]  # fmt: skip
    assert lines[1].split(maxsplit=8) == ["a", "18.1", "1", "0", "1", "1", "0", "2", "BBB-01 worst"]
    assert lines[2].endswith("not checked: nothing is listening on this socket")
    assert lines[3].split() == ["c", "18.1", "0", "0", "0", "0", "1", "0"]
    assert "\x1b" not in "".join(table_lines([ServerResult(HOSTILE, NASTY)]))
    document = servers_document([ServerResult("a", MIXED), ServerResult("b", problem=GONE)])
    assert [each["problem"] for each in document["servers"]] == [None, "nothing is listening on this socket"]
    json.dumps(document)


@pytest.mark.parametrize(
    ("results", "strict", "status"),
    [
        ([ServerResult("a", ACCEPTED)], False, ExitCode.OK),
        ([ServerResult("a", ACCEPTED), ServerResult("b", MIXED)], False, ExitCode.FAILED),
        ([ServerResult("b", MIXED), ServerResult("c", problem=GONE)], False, ExitCode.CONNECTION),
        ([ServerResult("a", report(CheckResult(_check("AAA-01"), unknowns=(Unknown("?"),))))], False, ExitCode.OK),
        ([ServerResult("a", report(CheckResult(_check("AAA-01"), unknowns=(Unknown("?"),))))], True, ExitCode.FAILED),
    ],
)
def test_the_status_is_that_of_the_worst(results: list[ServerResult], strict: bool, status: ExitCode) -> None:
    assert worst_status(results, Severity.WARNING, strict=strict) == status


def test_services_are_chosen_by_pattern_and_a_password_is_not_shown(server: Throwaway, tmp_path: Path) -> None:
    services = tmp_path / "services"
    services.write_text(
        f"[prod-a]\nhost={server.socket_dir}\nport={server.port}\nuser={server.user}\ndbname=postgres\n"
        f"[prod-b]\nhost={tmp_path}\n[other]\nhost=/nowhere\n"
    )
    words = ("check", "--select", "DUR-01", "--service-file", str(services), "--format", "json")
    ran = run(*words, "--services", "prod-*", home=tmp_path)
    found = {each["name"]: each for each in json.loads(ran.out)["servers"]}
    assert found.keys() == {"prod-a", "prod-b"}
    assert found["prod-a"]["report"]["findings"][0]["check"] == "DUR-01"
    assert "nothing is listening on this socket" in found["prod-b"]["problem"]
    assert ran.status == ExitCode.CONNECTION
    assert "has no service 'x*'" in run(*words, "--services", "x*", home=tmp_path).err
    servers = tmp_path / "servers"
    # With the byte order mark of some editors.
    servers.write_text(f"{conninfo(server)} password=ohsecret\n# mine\n", encoding="utf-8-sig")
    ran = run("check", "--select", "DUR-01", "--servers", str(servers), home=tmp_path)
    assert ran.status == ExitCode.FAILED
    assert "ohsecret" not in ran.out + ran.err
    assert "DUR-01 fsync is off" in ran.out


def test_what_some_looks_have_found_stands_in_the_report_with_how_many() -> None:
    def look(*severities: Severity, unknown: bool = False) -> Report:
        findings = tuple(_finding(each, f"{each} now", f"s{place}") for place, each in enumerate(severities))
        return report(
            CheckResult(_check("AAA-01"), findings),
            CheckResult(_check("AAA-02"), unknowns=(Unknown("not yet"),) if unknown else ()),
            CheckResult(_check("AAA-03"), unknowns=(Unknown("never"),)),
        )

    looks = LookSeries()
    looks.take(look(Severity.INFO, unknown=True))
    new, gone = looks.take(look(Severity.HIGH, Severity.WARNING))
    assert ([finding.subject for _, finding in new], gone) == (["s1"], [])
    new, gone = looks.take(look())
    assert (new, [finding.subject for _, finding in gone]) == ([], ["s0", "s1"])
    found = looks.together()
    assert [(each.subject, each.severity, each.evidence[-1].says) for _, each in found.findings] == [
        ("s0", Severity.HIGH, "found in 2 of 3 runs"), ("s1", Severity.WARNING, "found in 1 of 3 runs"),
    ]  # fmt: skip
    assert [each.says for _, each in found.findings] == [
        "high now (found in 2 of 3 runs)", "warning now (found in 1 of 3 runs)",
    ]  # fmt: skip
    assert [check.id for check, _ in found.unknowns] == ["AAA-03"]


def test_what_a_look_cannot_see_is_not_gone() -> None:
    seen = report(CheckResult(_check("AAA-01"), (_finding(Severity.HIGH, "found", "s"),)))
    blind = report(CheckResult(_check("AAA-01"), unknowns=(Unknown("the role may not see it any more"),)))
    looks = LookSeries()
    looks.take(seen)
    assert looks.take(blind) == ([], [])
    assert looks.take(seen) == ([], [])
    assert [subject.subject for _, subject in looks.take(report(CheckResult(_check("AAA-01"))))[1]] == ["s"]


@pytest.mark.parametrize("shown", [MIXED, NASTY, ACCEPTED, report()])
def test_a_page_of_openmetrics_has_a_sample_for_each_finding(shown: Report) -> None:
    text = "\n".join((*WRITERS["openmetrics"](shown, ReportOptions(details=False, fail_on=None)), ""))
    names = [name for name, _ in values(text)]
    assert names.count("pgtop_check_finding") == len(shown.findings)
    assert names.count("pgtop_check_accepted") == len(shown.accepted)
    assert names.count("pgtop_check_outcome") == len(shown.results)


def test_what_is_accepted_is_counted_for_all_looks_together() -> None:
    def look(*subjects: str) -> Report:
        return report(CheckResult(_check("AAA-01"), tuple(_finding(Severity.HIGH, "found", each) for each in subjects)))

    looks = LookSeries([AcceptedRisk("AAA-01", "public.*", "a reason", date(2099, 1, 1))])
    looks.take(look("public.a"))
    assert (looks.standing, looks.take(look("private.b", "public.a"))[0][0][1].subject) == (1 - 1, "private.b")
    looks.take(look())
    found = looks.together()
    assert [each.subject for _, each in found.findings] == ["private.b"]
    assert [each.finding.evidence[-1].says for _, each in found.accepted] == ["found in 2 of 3 runs"]
    assert found.lapsed == (), "the newest look alone would say that the acceptance covers nothing"


def test_the_report_says_how_many_looks_did_not_see_the_server() -> None:
    looks = LookSeries()
    looks.take(MIXED)
    assert dict(looks.together().identity)["runs"] == "1 run"
    for why in ("refused", "the socket is gone"):
        looks.miss(why)
    looks.take(MIXED)
    said = "2 runs; 2 more did not reach the server: the socket is gone"
    assert dict(looks.together().identity)["runs"] == said
    for name in ("text", "markdown", "html", "json"):
        lines = WRITERS[name](looks.together(), ReportOptions(details=False, fail_on=None))
        assert any(said in line for line in lines), name


def test_looks_at_another_server_are_not_looks_at_this_one() -> None:
    def of(identifier: str) -> Report:
        return replace(MIXED, identity=(("system identifier", identifier),))

    looks = LookSeries()
    assert not looks.of_another_server(of("1"))
    looks.take(of("1"))
    assert (looks.of_another_server(of("1")), looks.of_another_server(of("2"))) == (False, True)
    assert not looks.of_another_server(MIXED), "what the role may not see tells nothing"


def test_each_line_of_a_file_is_a_row_and_one_that_is_refused_is_one_as_well(tmp_path: Path) -> None:
    file = tmp_path / "servers"
    file.write_text(
        "host=/a dbname=d user=u\n\n# a comment\n"
        "host=/a dbname=d user=u sslmode=disable\n"
        "postgresql://u:ohsecret@[::1:port/d\n"
        "host=/a dbname=d user=u\n"
        "host=/a port=zehn\n"
    )
    found = servers_of(CheckRequest(servers=file))
    assert list(found) == [
        "u@/a:5432/d", f"u@/a:5432/d (line 4 of {file})", f"line 5 of {file}", f"line 7 of {file}",
    ]  # fmt: skip
    problems = [each for each in found.values() if isinstance(each, UsageProblem)]
    assert len(problems) == 2
    assert "ohsecret" not in "".join(map(str, problems))


def test_a_file_without_a_server_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "servers"
    file.write_text("# nothing\n\n")
    services = tmp_path / "services"
    services.write_text("[a]\nhost=/a\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    for wanted in (CheckRequest(servers=file), CheckRequest(services=["*"], servers=file)):
        with pytest.raises(UsageProblem, match=f"{file} names no server"):
            servers_of(wanted)


def test_services_are_those_that_libpq_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = tmp_path / "services"
    services.write_text(
        "# [no]\n  [indented]  # a remark\nhost=/a\n[it's \\\\ one]\nhost=/b\n"
        "[half\nhost=/c\n[bad]\nnonsense\n[]\nhost=/d\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", "")
    found = servers_of(CheckRequest(services=["*"], service_file=services))
    assert {name: getattr(each, "host", None) for name, each in found.items()} == {
        "indented": "/a", "it's \\\\ one": "/b", "bad": None,
    }  # fmt: skip


def test_json_of_several_servers_is_plain_whatever_names_there_are() -> None:
    lines = servers_lines([ServerResult(HOSTILE, NASTY), ServerResult("ж\u2028\x9b", problem=GONE)])
    assert "\n".join(lines).isascii()
    assert [each["name"] for each in json.loads("\n".join(lines))["servers"]] == [HOSTILE, "ж\u2028\x9b"]


def test_words_that_several_servers_do_not_take_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "servers"
    file.write_text("host=/nowhere\n")
    for words in (("-d", "bench"), ("-U", "u"), ("--pooler", "p=postgresql://a@127.0.0.1/pgbouncer")):
        assert run("check", "--servers", str(file), *words, home=tmp_path).status == ExitCode.USAGE
    assert "--services" in run("check", "--service-file", str(file), home=tmp_path).err


def test_an_interrupt_shows_the_results_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def gathered(conninfo: ConnInfo, *words: object, **more: object) -> CheckFacts:
        if conninfo.dbname == "second":
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)
        return spoilt()

    monkeypatch.setattr(check_report, "gather", gathered)
    file = tmp_path / "servers"
    file.write_text("".join(f"host=/a user=u dbname={name}\n" for name in ("first", "second", "third")))
    request = CheckRequest(servers=file, format=ReportFormat.JSON)
    monkeypatch.setattr("pgtop_tune.health.looks.AT_ONCE", 1)
    with pytest.raises(KeyboardInterrupt):
        check_all(request, CheckSetup.of(ProjectWishes()), Severity.WARNING)
    found = json.loads(capsys.readouterr().out)["servers"]
    assert [each["problem"] for each in found] == [None, "interrupted", "interrupted"]
    assert found[0]["report"]["findings"]
