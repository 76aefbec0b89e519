"""Outages in a plan: read, refused where a run cannot have them, and told over their repeats."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.compare.reports.outages import commit_lines
from pgtop_tune.compare.reports.written import sheets_text
from pgtop_tune.experiment.plan.outage_report import outage_sheet
from pgtop_tune.experiment.plan.outages import caused_by
from pgtop_tune.experiment.plan.plan_file import parse_plan, plan_path, read_plan
from pgtop_tune.experiment.plan.report import plan_lines, result_words
from pgtop_tune.experiment.plan.results import CausedOutage, CellResult
from pgtop_tune.model.outage import AcknowledgedCommits, ClientCommits, OutageResult, OutageRow, OutageSpan
from tests.support.plans import bound_text

THROWAWAY = 'servers = "throwaway"\n'
KILL = '[[outage]]\nname = "crash"\naction = "kill"\nafter = "30s"\n'
PROMOTE = '[[outage]]\nname = "switch"\naction = "promote"\nafter = "30s"\n'
POOLER = '[[outage]]\nname = "bounce"\naction = "restart pooler"\nafter = "30s"\n'


def test_each_outage_is_a_dimension_of_the_plan() -> None:
    plan = bound_text(f"{THROWAWAY}clients = [2, 4]\nrepeats = 2\n{KILL}{PROMOTE}")
    assert sorted({(cell.clients, cell.outage) for cell in plan.cells}) == [
        (2, "crash"), (2, "switch"), (4, "crash"), (4, "switch"),
    ]  # fmt: skip
    assert len(plan.cells) == 8
    text = "\n".join(plan_lines(plan, 0, 0))
    assert "outage crash: after 30 s, the postmaster is killed (SIGKILL), and the server is started again" in text
    assert "tpcb-like, 2 clients, the server, outage switch" in text


def test_the_shipped_plan_touches_no_server_of_the_operator() -> None:
    plan = read_plan(plan_path("outage"))
    assert plan.servers == "throwaway"
    assert {outage.action for outage in plan.outages} == {"kill", "restart", "promote"}
    # p99 is compared with the minute before.
    assert all(60.0 < outage.after_s < plan.time_s - 30.0 for outage in plan.outages)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'time = "20s"\n{THROWAWAY}{KILL}', "crash after 30 s is not within a run of 20 s"),
        (
            f'{THROWAWAY}{PROMOTE}[[configuration]]\nname = "a"\n[configuration.parameters]\nwork_mem = "8MB"\n',
            "a standby does not have the parameters",
        ),
        (f"{THROWAWAY}{POOLER}", "the server is no pooler"),
    ],
)
def test_an_outage_that_a_run_cannot_have_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        bound_text(text)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('[[outage]]\nname = "a"\naction = "flood"\n', "line 4: outage.action takes one of restart, kill, promote"),
        ('[[outage]]\nname = "a"\n', "line 2: outage.action takes one of"),
        ('[[outage]]\nname = "a"\naction = "kill"\nafter = "soon"\n', "line 5: outage.after takes a length of time"),
        ('[[outage]]\nname = "a"\naction = "kill"\nwhen = "5s"\n', "line 5: unknown key 'when'"),
        ('[[outage]]\nname = "a\\u001b[2J"\naction = "kill"\n', "line 3: outage.name takes printable text"),
    ],
)
def test_a_wrong_outage_is_told_with_its_line(table: str, words: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        parse_plan(f'name = "x"\n{table}', "mine.toml")
    assert f"mine.toml, {words}" in str(problem.value)


def test_the_pooler_of_an_endpoint_fails_and_the_server_stays_up() -> None:
    endpoints = '[[endpoint]]\nname = "direct"\n[[endpoint]]\nname = "bouncer"\naddress = ":6432"\n'
    plan = bound_text(f"{POOLER}{endpoints}")
    assert not plan.server_fails
    assert plan.failing_poolers == ("bouncer",)
    assert [cell.endpoint for cell in plan.cells if cell.impossible] == ["direct"]


def result(number: int, missing: int = 0, down_s: float | None = 0.5, recovered_s: float | None = 12.0) -> CellResult:
    row = OutageRow(
        span=OutageSpan(first_error_ms=1_000.0, lost_clients=4),
        down_s=down_s,
        recovered_ms=None if recovered_s is None else 1_000.0 + 1_000.0 * recovered_s,
        recovery="p99 of 10 s is not back",
        failed_transactions=4,
    )
    commits = AcknowledgedCommits(
        (ClientCommits(group=1, client=0, acknowledged=100, committed=100 - missing, in_doubt=1),)
    )
    return CellResult(
        number=number,
        caused=CausedOutage(at_ms=1_000, took_s=0.4),
        outage=OutageResult(outages=(row,), commits=commits),
    )


def test_the_table_has_the_figures_over_the_repeats_and_tells_each_missing_commit() -> None:
    plan = bound_text(f"{THROWAWAY}repeats = 3\n{KILL}")
    results = (result(1, down_s=0.25), result(2, down_s=1.5, missing=7), result(3, recovered_s=None))
    sheet = outage_sheet(list(zip(plan.cells, results, strict=True)))
    assert sheet is not None
    text = sheets_text([sheet])
    assert "3 of 3  0.250 0.500 1.500" in text
    assert "cell 2, crash, repeat 2: missing commits: 7 of 100 acknowledged" in text
    assert "cell 3, crash, repeat 3: p99 is not back: p99 of 10 s is not back" in text
    assert sheet.table is not None
    assert "times" not in text
    # One time is not known, so neither is their range.
    assert sheet.table.rows[0][4:] == ("-", "12", "300", "7", "3")


def test_clients_that_waited_were_not_down_for_no_time() -> None:
    plan = bound_text(f"{THROWAWAY}{KILL}")
    waited = replace(result(1), outage=OutageResult(silent_s=4.0))
    assert result_words(waited).startswith("no transaction ended for 4.0 s, and no client was lost; missing commits")
    sheet = outage_sheet([(plan.cells[0], waited)])
    assert sheet is not None
    assert sheet.table is not None
    assert sheet.table.rows[0][3:5] == ("-", "-")
    assert "cell 1, crash, repeat 1: no transaction ended for 4.0 s, and no client was lost" in sheet.notes


def test_rows_of_another_primary_are_told_beside_the_missing_commits() -> None:
    commits = AcknowledgedCommits(
        (ClientCommits(group=1, client=0, acknowledged=9, committed=0),), counted_on="/a:5432", elsewhere="/b:5432"
    )
    assert commit_lines(commits)[1] == (
        "two servers take writes: the rows of /a:5432 were counted, those of /b:5432 were not, and its table stays"
    )


def test_clients_that_are_lost_again_and_again_are_told_in_one_line() -> None:
    plan = bound_text(f"{THROWAWAY}{KILL}")
    [row] = result(1).outage.outages  # type: ignore[union-attr]
    rows = tuple(replace(row, span=replace(row.span, reason=f"reason {number}\x1b[2J")) for number in range(40))
    again = replace(result(1), outage=OutageResult(outages=rows))
    sheet = outage_sheet([(plan.cells[0], again)])
    assert sheet is not None
    [note] = [note for note in sheet.notes if "times" in note]
    assert note.startswith("cell 1, crash, repeat 1: clients were lost 40 times, at last: reason 39")
    assert "\x1b" not in note


def test_what_is_not_known_is_never_zero() -> None:
    plan = bound_text(f"{THROWAWAY}{KILL}")
    unknown = OutageResult(
        outages=(
            OutageRow(
                span=OutageSpan(first_error_ms=1_000.0, lost_clients=4),
                down_s=None, recovered_ms=None, recovery="no commit came", failed_transactions=4,
            ),
        ),
        commits=AcknowledgedCommits(problem="no server answers"),
    )  # fmt: skip
    lost = CellResult(number=1, caused=CausedOutage(at_ms=1, took_s=1.0, problem="it hangs"), outage=unknown)
    assert result_words(lost) == (
        "downtime unknown; p99 not known to be back; 4 failed transactions; missing commits: not counted: no server "
        "answers; a server did not come back at once: it hangs"
    )
    sheet = outage_sheet([(plan.cells[0], lost)])
    assert sheet is not None
    assert sheet.table is not None
    assert sheet.table.rows[0][3:] == ("-", "-", "4", "-", "-", "-")
    # Of no acknowledged commit it is not known whether one is missing.
    nobody = ClientCommits(group=1, client=0, acknowledged=0, committed=0)
    killed = ClientCommits(group=1, client=1, acknowledged=7, committed=7, unknown="its pgbench was killed")
    silent = replace(lost, outage=replace(unknown, commits=AcknowledgedCommits((nobody, killed))))
    assert "missing commits: not counted: its pgbench was killed;" in result_words(silent)
    sheet = outage_sheet([(plan.cells[0], silent)])
    assert sheet is not None
    assert sheet.table is not None
    assert sheet.table.rows[0][6:] == ("-", "-", "-")
    failed = outage_sheet([(plan.cells[0], CellResult(number=1, reason="no server"))])
    assert failed is not None
    assert failed.table is not None
    assert failed.table.rows[0][2:] == ("0 of 1", *("-",) * 6)


def test_an_action_that_may_not_look_at_the_server_is_an_outage_with_its_problem(tmp_path: Path) -> None:
    loop = tmp_path / "data"
    loop.symlink_to(loop)
    caused = caused_by(lambda: os.close(os.open(loop, os.O_RDONLY)))
    assert caused.problem == "the server cannot be looked at: Too many levels of symbolic links"
