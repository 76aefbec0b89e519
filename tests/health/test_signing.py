"""The report that is signed off, and the proposal it ends with, of the values that `advise` has."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.formats.for_people import text_lines
from pgtop_tune.health.formats.writers import WRITERS, ReportOptions, html_lines, verdict
from pgtop_tune.health.project_file import ProjectWishes
from pgtop_tune.health.report import Accepted, CheckResult, ProposedRow, ProposedValues
from pgtop_tune.health.setup import CheckSetup, OperatorClaims
from pgtop_tune.model.machine import DiskKind
from tests.cli.runs import run
from tests.health.test_formats import ACCEPTED, HOSTILE, MIXED, NASTY, _check, _finding, report
from tests.health.test_told import managed
from tests.support.health_facts import spoilt
from tests.support.machine_frames import GIB
from tests.support.servers import conninfo

LONG = report(CheckResult(_check("AAA-01"), (_finding(Severity.HIGH, "x" * 20_000, "a\u2028b\x85c\x0bd"),)))
ROW = ProposedRow(
    name="work_mem", now="4MB", pending="8MB", proposed="25MB", because="It fits.", restart=False, of_machine=False,
    others=(("pgtune", "72MB"),),
)  # fmt: skip
PROPOSED = replace(
    MIXED,
    identity=(("system identifier", "7581"),),
    proposal=ProposedValues((ROW, replace(ROW, name="shared_buffers", restart=True)), ("the rule",), (("x", "why"),)),
)


@pytest.mark.parametrize(
    ("shown", "fail_on", "strict", "said"),
    [
        (MIXED, Severity.WARNING, False, "NO-GO: 2 findings, warning or worse"),
        (MIXED, Severity.CRITICAL, False, "NO-GO: 1 finding, critical"),
        (ACCEPTED, Severity.INFO, False, "GO: no finding at info or worse; 1 accepted"),
        (ACCEPTED, Severity.INFO, True, "GO: no finding at info or worse; 1 accepted"),
        (MIXED, None, False, "GO: findings do not count; 2 unknown"),
        (MIXED, None, True, "NO-GO: 2 unknown"),
        (
            replace(
                ACCEPTED, n_known=3, compared_with="a.json", left_out=("CCC-01",), changed=(("changed limits", "x"),)
            ),
            Severity.HIGH,
            False,
            "GO: no new finding at high or worse; 3 known from a.json; 1 accepted; 1 of 2 checks left out; "
            "with changed limits",
        ),
    ],
)
def test_go_or_no_go_goes_by_what_a_pipeline_fails_for(
    shown: object, fail_on: Severity | None, strict: bool, said: str
) -> None:
    assert verdict(shown, fail_on, strict=strict) == said  # type: ignore[arg-type]


def test_the_page_has_all_that_is_signed_for() -> None:
    accepted = Accepted(_finding(Severity.HIGH), "a reason", date(2027, 1, 31))
    shown = replace(PROPOSED, results=(*MIXED.results, CheckResult(_check("CCC-01"), accepted=(accepted,))))
    page = "\n".join(html_lines(shown, Severity.WARNING, strict=False))
    assert page.count("<!doctype html>") == 1
    for words in (
        "NO-GO: 2 findings", "system identifier: 7581", "a reason", "2027-01-31", "1940 times", "no pg_test_timing",
        "25MB", "pgtune 72MB", "(restart)", "the rule", "UNDO;", "the role may not see it", "signature",
    ):  # fmt: skip
        assert words in page


def test_a_signed_page_says_what_was_not_looked_at_and_by_which_limits() -> None:
    wishes = ProjectWishes(ignore=("OS", "SEC-15"), thresholds=("MEM-01=300", "SLOT-01=2GB"))
    told = OperatorClaims(memory_bytes=64 * GIB, cpus=16, disk=DiskKind.SSD)
    shown = CheckSetup.of(wishes, told=told).judged(managed())
    for name in ("html", "markdown", "json"):
        page = "\n".join(WRITERS[name](shown, ReportOptions(details=False, fail_on=None))).replace("\\", "")
        for words in ("OS-07", "SEC-15", "MEM-01.warning is 300% (90%)", "64 GB of memory, 16 CPUs"):
            assert words in page, (name, words)
    assert "left out: 12" in text_lines(shown)[-1]
    usual = CheckSetup.of(ProjectWishes()).judged(spoilt())
    assert (usual.left_out, usual.changed) == ((), ())


def test_a_document_is_whole_however_long_its_lines_are(server: Throwaway, tmp_path: Path) -> None:
    """A page of findings is one line of HTML."""
    page = tmp_path / "page.html"
    ran = run("check", "--format", "html", "-o", str(page), "-d", conninfo(server), home=tmp_path)
    assert max(map(len, page.read_text().splitlines())) > 10_000, "or this test says nothing"
    assert page.read_text().endswith("</body></html>\n"), ran
    json.loads("\n".join(WRITERS["json"](LONG, ReportOptions(details=False, fail_on=None))))


def test_nothing_foreign_is_markup_on_the_page() -> None:
    page = "\n".join(html_lines(replace(NASTY, identity=(("machine", HOSTILE),)), Severity.HIGH, strict=True))
    assert not re.search(r"<b>|<script|\x1b|\x00|‮", page)


def test_text_ends_with_the_proposal_and_what_others_say_comes_with_details() -> None:
    lines = text_lines(PROPOSED)
    [place] = [number for number, line in enumerate(lines) if line.startswith("proposal, values that fit together")]
    assert lines[place + 1].split() == ["name", "now", "pending", "proposed", "because"]
    assert lines[place + 2].split() == ["work_mem", "4MB", "8MB", "25MB", "It", "fits."]
    assert "25MB (restart)" in lines[place + 3]
    assert lines[place + 4 : place + 6] == ["  the rule", "  x: why"]
    assert lines[-1].startswith("found: ")
    assert any("pgtune 72MB" in line for line in text_lines(PROPOSED, everything=True))
    none = replace(PROPOSED, proposal=ProposedValues(()))
    assert "proposal: all proposed values are in force" in text_lines(none)
    assert not any("proposal" in line for line in text_lines(report()))


def test_a_check_proposes_what_advise_advises(fresh_server: Throwaway, tmp_path: Path) -> None:
    target = ("-d", conninfo(fresh_server))
    checked = run("check", "--format", "json", *target, home=tmp_path)
    values = {row["name"]: row for row in json.loads(checked.out)["proposal"]["values"]}
    advised = {
        row["name"]: row["advice"]["value"]
        for words in ((), ("--group", "os"))
        for row in json.loads(run("advise", "--seconds", "0", "--format", "json", *words, *target, home=tmp_path).out)
        if row["advice"]["value"] is not None
    }
    assert {"shared_buffers", "work_mem"} <= values.keys()
    # Rates of a moment, and the half of a pair that `advise` gives alone.
    for name in values.keys() & advised.keys() - {"max_wal_size", "min_wal_size", "huge_pages", "vm.nr_hugepages"}:
        assert values[name]["proposed"] == advised[name], name
    assert values.keys() - advised.keys() <= {"huge_pages"}
    assert "the book's memory rule: 2 GB + shared_buffers" in json.loads(checked.out)["proposal"]["memory"][0]
    chosen = json.loads(run("check", "--select", "MEM", "--format", "json", *target, home=tmp_path).out)
    assert chosen["proposal"] is None


def test_a_project_signs_for_a_finding_and_strict_fails_for_what_is_unknown(server: Throwaway, tmp_path: Path) -> None:
    (tmp_path / "pgtop-tune.toml").write_text(
        '[[check.accept]]\ncheck = "DUR-01"\nreason = "a throwaway server"\nuntil = 2099-12-31\n'
    )
    target = ("--config", str(tmp_path / "pgtop-tune.toml"), "-d", conninfo(server))
    ran = run("check", "--select", "DUR-01", *target, home=tmp_path)
    assert "accepted  DUR-01" in ran.out
    assert "a throwaway server, until 2099-12-31" in ran.out
    assert ran.status == 0
    alone = run("check", "--select", "DUR-01", "-d", conninfo(server), home=tmp_path)
    assert alone.status == 1
    unknown = ("check", "--select", "DISK-08", "-d", conninfo(server))
    assert run(*unknown, home=tmp_path).status == 0
    assert run(*unknown, "--strict", home=tmp_path).status == 1
