"""Several results in words: a table, and each doubt once with the runs it concerns."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.cli.commands.bench.results import results_markdown, results_text
from pgtop_tune.cli.commands.bench.runs import progress_words
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, StatementReport
from pgtop_tune.model.run_result import Doubt, RunResult, RunVerdict, ServerTimes, StatementTimes
from tests.support.results import asked, result
from tests.support.run_frames import run_frames

SUSPECT, NOTE = RunVerdict.SUSPECT, RunVerdict.NOTE


def doubted(endpoint: str, clients: int, *doubts: Doubt) -> RunResult:
    return replace(result(asked(endpoint=endpoint, clients=clients)), doubts=doubts)


def queued(percent: str) -> Doubt:
    return Doubt("CPU-CONTENTION", SUSPECT, f"pgbench waited for a CPU {percent} % of the time", "another host")


LOOP = Doubt("CLOSED-LOOP", NOTE, "each client waited", "--rate")
SHORT = Doubt("SHORT-RUN", NOTE, "3 s are short")
FAILED = Doubt("RUN-FAILED", RunVerdict.INVALID, "no room")
P5 = [
    doubted("PostgreSQL", 500, LOOP, queued("31"), SHORT),
    doubted("PostgreSQL", 600, LOOP, FAILED),
    doubted("PgBouncer", 500, LOOP, queued("31.5"), SHORT),
    doubted("PgBouncer", 1000, LOOP, queued("96"), SHORT),
]


def test_a_doubt_stands_once_with_its_runs_and_the_range_of_its_figures() -> None:
    assert results_text(P5, None, "#").partition("\n\n")[2].splitlines() == [
        "PostgreSQL ×600: invalid RUN-FAILED: no room",
        "all but PostgreSQL ×600: suspect CPU-CONTENTION: pgbench waited for a CPU 31-96 % of the time -> another host",
        "all: note CLOSED-LOOP: each client waited -> --rate",
        "all but PostgreSQL ×600: note SHORT-RUN: 3 s are short",
    ]
    assert [line for line in results_markdown(P5, None).splitlines() if line.startswith("-")] == [
        "- PostgreSQL ×600: invalid RUN-FAILED: no room",
        "- all but PostgreSQL ×600: suspect CPU-CONTENTION: pgbench waited for a CPU 31-96 % of the time"
        " -&gt; another host",
    ]


def test_retries_and_the_failures_of_statements_stand_in_the_text() -> None:
    statement = StatementReport("UPDATE t SET n = n + 1", 1.5, failures=3, retries=41)
    made = result(asked())
    assert made.report is not None
    report = replace(made.report, retried=17, retries=41, statements=(statement,))
    told = results_text(
        [replace(made, report=report, failed=3, failures={"serialization": 3, "deadlock": 0})], None, "#"
    )
    assert f"transactions: {made.processed} done, 3 failed, 3 serialization, 17 retried, 41 retries" in told
    assert "UPDATE t SET n = n + 1  3 failed  41 retries" in told
    assert "transactions:" not in results_text([made], None, "#")
    bench = run_frames(seconds=3)[-1].bench
    assert not isinstance(bench, Unavailable)
    second = progress_words(bench.run, BenchProgress(1.0, 5.0, 2.0, 0.1, failed=1, retries=4))
    assert second.endswith("1 failed  4 retries")


def test_advice_is_for_the_highest_figure() -> None:
    few = [Doubt("SCALE", SUSPECT, f"{clients} clients queue", f"scale {clients} or more") for clients in (4, 16, 8)]
    results = [doubted("direct", number, doubt) for number, doubt in enumerate(few, 1)]
    assert (
        results_text(results, None, "#").splitlines()[-1]
        == "all: suspect SCALE: 4-16 clients queue -> scale 16 or more"
    )


def test_runs_are_named_by_what_tells_them_apart() -> None:
    def named(*results: RunResult) -> str:
        return results_text(results, None, "#").splitlines()[-1].partition(":")[0]

    steps = [doubted("direct", clients, *([LOOP] if clients < 3 else [])) for clients in (1, 2, 4, 8)]
    assert named(*steps) == "×1 ×2"
    places = [doubted(name, 8, *([LOOP] if name == "b" else [])) for name in "abc"]
    assert named(*places) == "b"
    both = [doubted(name, clients, *([LOOP] if name != "c" else [])) for name in "abcd" for clients in (1, 2)]
    assert named(*both[:6]) == "all but c"
    assert named(*both[4:]) == "d"


def test_figures_of_the_server_for_equal_statements_are_marked() -> None:
    read = "SELECT 1;"
    times = tuple(StatementTimes("", each, 10, 0.5, 0.1, shared=each == read) for each in (read, "SELECT 2;", read))
    made = result()
    assert made.report is not None
    statements = tuple(StatementReport(each.text, 1.0) for each in times)
    made = replace(made, report=replace(made.report, statements=statements), server_times=ServerTimes(times))
    lines = results_text([made], None, "#").splitlines()
    assert [line.endswith(f"* {read}") for line in lines if "SELECT" in line] == [True, False, True]
    assert "* the server counts identical statements as one: its figures cover all of them" in lines
