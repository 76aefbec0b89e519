"""The final report of pgbench, complete, partial, and none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from pgtop_tune.bench.report import parse_report
from pgtop_tune.model.bench import BenchReport, ScriptReport, StatementReport

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.stdout").read_text()


def test_a_finished_run() -> None:
    report = parse_report(sample("finished_15"))
    assert report is not None
    assert report.tps == 4340.116001
    assert (report.latency_average_ms, report.latency_stddev_ms) == (0.914, 0.898)
    assert report.initial_connection_ms == 7.002
    assert (report.processed, report.failed, report.scale, report.clients, report.threads) == (13018, 0, 5, 4, 2)
    assert report.retried is report.skipped is report.schedule_lag_ms is None
    assert report.raw.startswith("pgbench (15.18")


@pytest.mark.parametrize("major", [15, 18])
def test_a_throttled_run_tells_lag_skipped_and_late(major: int) -> None:
    report = parse_report(sample(f"skipped_{major}"))
    assert report is not None
    assert report.schedule_lag_ms == pytest.approx(1.88, abs=0.01)
    assert report.schedule_lag_max_ms == 2.0
    assert report.skipped is not None
    assert report.skipped > 10_000
    assert report.latency_limit_exceeded is not None
    assert report.latency_limit_exceeded > 6000


@pytest.mark.parametrize("major", [15, 18])
def test_failures_and_retries(major: int) -> None:
    report = parse_report(sample(f"failed_{major}"))
    assert report is not None
    assert report.failed is not None
    assert report.failed > 6000
    assert report.retried == report.retries


@pytest.mark.parametrize("name", ["no_tables_18", "refused_15", "too_many_18", "no_role_15"])
def test_a_run_that_never_began_has_no_report(name: str) -> None:
    assert parse_report(sample(name)) is None


def test_an_aborted_run_has_a_partial_report() -> None:
    report = parse_report(sample("terminated_18"))
    assert report is not None
    assert report.processed == 4775


def test_13_has_two_tps_lines_and_the_one_without_connecting_counts() -> None:
    report = parse_report(
        "number of transactions actually processed: 10/10\n"
        "latency average = 1.500 ms\n"
        "tps = 600.5 (including connections establishing)\n"
        "tps = 700.5 (excluding connections establishing)\n"
    )
    assert report is not None
    assert (report.tps, report.processed, report.latency_average_ms) == (700.5, 10, 1.5)


def test_nan_is_absent_and_a_missing_tps_as_well() -> None:
    report = parse_report(
        "number of transactions actually processed: 0\n"
        "number of failed transactions: 0 (NaN%)\n"
        "latency average = NaN ms\n"
    )
    assert report is not None
    assert (report.processed, report.failed, report.tps, report.latency_average_ms) == (0, 0, None, None)


def test_figures_of_single_scripts_do_not_replace_those_of_the_run() -> None:
    report = parse_report(
        "number of transactions actually processed: 100\ntps = 50.0 (without initial connection time)\n"
        "SQL script 1: <builtin: select only>\n - number of transactions actually processed: 30 (tps = 15.0)\n"
        " - latency average = 9.000 ms\nnumber of transactions actually processed: 7\n"
    )
    assert report is not None
    assert (report.processed, report.tps, report.latency_average_ms) == (100, 50.0, None)


REPORTS = sorted(SAMPLES.glob("1[4-9]/*.stdout"))
NEVER_BEGAN = ("bad_script",)
NOTHING_DONE = ("nothing_finished", "aborted_at_once")


def of(major: int, name: str) -> BenchReport:
    report = parse_report((SAMPLES / str(major) / f"{name}.stdout").read_text())
    assert report is not None
    return report


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_report_of_14_to_19_has_its_figures(path: Path) -> None:
    text = path.read_text()
    report = parse_report(text)
    if path.stem in NEVER_BEGAN:
        assert report is None
        return
    assert report is not None
    assert report.version is not None
    assert report.version.startswith(path.parent.name)
    assert report.scale == 1
    assert (report.server_version is None) == (", server " not in text)
    if path.stem in NOTHING_DONE:
        assert (report.processed, report.tps, report.latency_average_ms) == (0, None, None)
        return
    assert None not in (report.processed, report.tps, report.latency_average_ms, report.latency_stddev_ms)
    assert (report.failed is None) == (path.parent.name == "14")
    assert (report.initial_connection_ms is None) == (path.stem == "connecting")
    assert (report.average_connection_ms is None) == (path.stem != "connecting")
    assert (report.asked is None) == (not path.stem.startswith("transactions"))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_line_with_a_figure_is_passed_over(path: Path) -> None:
    """Each figure of the text is found again in the report, so that a new kind of line would be noticed."""
    text = path.read_text()
    report = parse_report(text)
    if report is None:
        return
    known = {str(value) for value in _values(report)}
    for line in text.splitlines():
        figure = re.search(r"(?:: |= |avg |^ *| - )(\d+(?:\.\d+)?)(?: ms|/| s| \(|$|  )", line)
        if figure and not line.startswith(("pgbench", "partition")):
            assert str(float(figure[1]) if "." in figure[1] else int(figure[1])) in known, line


def _values(part: object) -> Iterator[object]:
    """All figures of a report and its parts; transactions with the skipped and failed ones as well."""
    if isinstance(part, tuple):
        for each in part:
            yield from _values(each)
    elif isinstance(part, Struct):
        for name in part.__struct_fields__:
            yield from _values(getattr(part, name))
        if isinstance(part, ScriptReport):
            yield (part.processed or 0) + (part.skipped or 0)
            yield (part.processed or 0) + (part.skipped or 0) + (part.failed or 0)
    else:
        yield part


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18, 19])
def test_scripts_have_their_names_weights_shares_and_statements(major: int) -> None:
    report = of(major, "scripts_statements")
    read, write = report.scripts
    assert report.transaction_type == "multiple scripts"
    assert [(each.number, each.name, each.weight, each.target_percent) for each in report.scripts] == [
        (1, "read.sql", 9, 90.0),
        (2, "write.sql", 1, 10.0),
    ]
    assert read.processed is not None
    assert write.processed is not None
    assert read.tps is not None
    assert report.processed is not None
    assert read.processed + write.processed == pytest.approx(report.processed, abs=50)
    assert read.tps == pytest.approx(0.9 * (report.tps or 0.0), rel=0.05)
    assert [each.text for each in write.statements] == [
        "\\set aid random(1, 100000)",
        "BEGIN;",
        "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;",
        "END;",
    ]
    whole_ms = sum(each.latency_ms for each in write.statements)
    assert whole_ms == pytest.approx(write.latency_average_ms, rel=0.1)
    assert {each.failures for each in write.statements} == ({None} if major == 14 else {0})
    assert {each.retries for each in write.statements} == {None}


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18, 19])
def test_the_statements_of_a_single_script_are_the_runs(major: int) -> None:
    report = of(major, "statements")
    assert report.scripts == ()
    assert len(report.statements) == 11
    assert report.statements[0].text == "\\set aid random(1, 100000 * :scale)"
    assert report.statements[5].text.startswith("UPDATE pgbench_accounts SET abalance")


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18, 19])
def test_skipped_transactions_of_a_script_are_not_among_those_processed(major: int) -> None:
    report = of(major, "skipped_scripts")
    processed = sum(each.processed or 0 for each in report.scripts)
    skipped = sum(each.skipped or 0 for each in report.scripts)
    assert processed == pytest.approx(report.processed, abs=20)
    assert skipped == pytest.approx(report.skipped, abs=100)
    assert report.latency_limit_exceeded is not None


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18, 19])
def test_a_script_that_was_never_chosen_has_no_transactions_and_no_latency(major: int) -> None:
    script = of(major, "scripts").scripts[2]
    assert (script.name, script.weight, script.processed, script.latency_average_ms) == ("sleep.sql", 0, 0, None)


@pytest.mark.parametrize("major", [15, 16, 17, 18, 19])
def test_failures_by_kind_script_and_statement(major: int) -> None:
    report = of(major, "failed_statements")
    assert report.failed is not None
    assert report.failed > 0
    assert report.failed == (report.serialization_failures or 0) + (report.deadlock_failures or 0)
    transfer, repeatable = report.scripts
    assert transfer.deadlock_failures is not None
    assert repeatable.serialization_failures is not None
    assert sum(each.failures or 0 for each in transfer.statements) == pytest.approx(transfer.failed, abs=3)
    assert sum(each.failures or 0 for each in repeatable.statements) == pytest.approx(repeatable.failed, abs=3)
    assert report.retried is None


def test_errors_after_which_19_continues_are_failures_of_their_script_and_statement() -> None:
    report = of(19, "continued")
    read, syntax = report.scripts
    assert report.failed == syntax.failed == syntax.statements[1].failures
    assert report.failed is not None
    assert report.failed > 0
    assert (read.failed, read.processed) == (0, report.processed)
    assert (report.serialization_failures, report.deadlock_failures) == (0, 0)
    assert (syntax.processed, syntax.latency_average_ms) == (0, None)


@pytest.mark.parametrize("major", [15, 16, 17, 18, 19])
def test_retries_by_script_and_statement(major: int) -> None:
    report = of(major, "retried_statements")
    assert report.max_tries == 3
    assert report.retries is not None
    assert report.retries >= (report.retried or 0) > 0
    assert sum(script.retries or 0 for script in report.scripts) == pytest.approx(report.retries, abs=5)
    statements = [statement for script in report.scripts for statement in script.statements]
    assert sum(each.retries or 0 for each in statements) == pytest.approx(report.retries, abs=5)


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18, 19])
def test_a_run_by_transactions_says_how_many_were_asked_for(major: int) -> None:
    done, aborted = of(major, "transactions"), of(major, "transactions_aborted")
    assert (done.processed, done.asked, done.duration_s) == (1000, 1000, None)
    assert aborted.asked == 10_000
    assert aborted.processed is not None
    assert aborted.processed < 10_000
    assert aborted.tps is not None


def test_a_statement_keeps_its_own_indentation_and_may_be_empty() -> None:
    report = parse_report(
        "number of transactions actually processed: 1\nstatement latencies in milliseconds and failures:\n"
        "         0.500           2   SELECT 1\n         1.500           0 \n       -nan           0 SELECT 2\n"
    )
    assert report is not None
    assert report.statements == (StatementReport(" SELECT 1", 0.5, 2), StatementReport("", 1.5, 0))


@given(st.sampled_from(REPORTS), st.data())
def test_no_prefix_and_no_mutation_upsets_the_parser_or_makes_up_a_figure(path: Path, data: st.DataObject) -> None:
    text = path.read_text()
    whole = parse_report(text)
    cut = parse_report(text[: data.draw(st.integers(0, len(text)))])
    if cut is not None and whole is not None:
        missing = [name for name in cut.__struct_fields__ if getattr(whole, name) is None]
        assert [name for name in missing if getattr(cut, name) is not None] == []
    at = data.draw(st.integers(0, len(text)))
    parse_report(text[:at] + data.draw(st.text(max_size=20)) + text[at + data.draw(st.integers(0, 40)) :])


@given(st.text(max_size=300), st.integers(0, 2000))
def test_no_text_upsets_the_parser(text: str, cut: int) -> None:
    parse_report(text)
    parse_report(sample("skipped_18")[:cut] + text)
