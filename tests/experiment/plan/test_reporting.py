"""What is said of the results: tables, verdicts against the baseline, disks that were the limit."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.written import report_html, report_markdown, sheets_text
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.experiment.attribution import Surroundings
from pgtop_tune.experiment.plan.model import BoundPlan
from pgtop_tune.experiment.plan.report import chapters, plan_lines, status_lines
from pgtop_tune.experiment.plan.results import CellResult, ExperimentOutcome, MadeData
from pgtop_tune.experiment.plan.verdicts import judgements
from pgtop_tune.experiment.server_state import changes_between
from tests.support.plans import bound_text, outcome

DEFAULT = '[[configuration]]\nname = "default"\n'
TWO = f'{DEFAULT}[[configuration]]\nname = "tuned"\n[configuration.parameters]\nwork_mem = 64\n'
P1 = f'time = "60s"\nrepeats = 2\nprofiles = ["tpcb-like", "select-only"]\n{TWO}'


def measured(plan: BoundPlan, tps: dict[tuple[str, str], float]) -> ExperimentOutcome:
    return outcome(plan, {cell.number: tps[cell.arm, cell.profile] + cell.repeat for cell in plan.cells})


TPS = {
    ("default", "tpcb-like"): 1000.0, ("default", "select-only"): 5000.0,
    ("tuned", "tpcb-like"): 1500.0, ("tuned", "select-only"): 3500.0,
}  # fmt: skip


def markdown(found: ExperimentOutcome) -> str:
    return report_markdown("t", chapters(found))


def test_a_loss_is_told_as_loudly_as_a_gain() -> None:
    found = chapters(measured(bound_text(P1), TPS))
    summary = sheets_text([part for part in found[0].parts if isinstance(part, Sheet)])
    for told in (summary, report_markdown("t", found), report_html("t", found)):
        assert "tuned: tpcb-like, 1 clients, scale 1, the server got faster by 50 % (better)" in told
        assert "tuned: select-only, 1 clients, scale 1, the server got slower by 30 % (worse)" in told


def slower_tail(found: ExperimentOutcome, arm: str, factor: float) -> ExperimentOutcome:
    """The same with a p99 of 5 ms that is longer in one arm."""
    arms = {cell.number: cell.arm for cell in found.plan.cells}
    results = {
        number: replace(
            each, p50_ms=1.0 + number / 1e3, p99_ms=(5.0 + number / 100.0) * (factor if arms[number] == arm else 1.0)
        )
        for number, each in found.results.items()
    }
    return replace(found, results=results)


def test_a_gain_that_is_a_loss_in_the_tail_is_told_as_the_trade_it_is() -> None:
    plan = bound_text(P1.replace("repeats = 2", "repeats = 6"))
    found = slower_tail(measured(plan, TPS), "tuned", 2.0)
    judged = {each.load[2]: each for each in judgements(found)}
    assert judged["tpcb-like"].trade.startswith("tps +49.8 %, latency p99 +10")
    assert judged["select-only"].trade == ""
    told = markdown(found)
    assert "got faster by 50 % (better); trade: tps +49.8 %, latency p99 +10" in told
    assert "tuned: latency p99 of select-only, 1 clients, scale 1, the server got longer by 10" in told
    assert "| tuned | tpcb-like, 1 clients, scale 1, the server | latency p50 |" in told


def busy(found: ExperimentOutcome, arm: str, foreign: float) -> ExperimentOutcome:
    """The same with other programs beside one arm."""
    arms = {cell.number: cell.arm for cell in found.plan.cells}
    results = {
        number: replace(each, cpu=Surroundings(foreign if arms[number] == arm else 1.0, 0.0, 50.0, 4))
        for number, each in found.results.items()
    }
    return replace(found, results=results)


def test_a_loss_beside_which_others_took_the_cpus_is_not_attributable() -> None:
    plan = bound_text(P1)
    found = busy(measured(plan, TPS), "tuned", 41.0)
    judged = {each.load[2]: each for each in judgements(found)}
    # The gain came in spite of them.
    assert judged["tpcb-like"].verdict == "better"
    assert "which explains less than the effect" in judged["tpcb-like"].beside
    assert judged["select-only"].verdict == "not attributable"
    told = markdown(found)
    assert "got slower by 30 % (other programs used 1.6 more cores during tuned: not attributable)" in told
    assert "other programs used more than 5 % of the CPUs during 4 cells" in told
    assert {each.verdict for each in judgements(busy(measured(plan, TPS), "tuned", 3.0))} == {"better", "worse"}


def test_what_earlier_runs_of_this_machine_showed_makes_a_verdict_without_repeats() -> None:
    plan = bound_text(P1.replace("repeats = 2\n", ""))
    found = measured(plan, TPS)
    known = {"tps": RunSpread(12 * 0.01**2, 12)}
    results = {number: replace(each, known=known) for number, each in found.results.items()}
    assert {each.verdict for each in judgements(replace(found, results=results))} == {"better", "worse"}
    noisy = {"tps": RunSpread(16 * 0.3**2, 16)}
    results = {number: replace(each, known=noisy) for number, each in found.results.items()}
    assert {each.verdict for each in judgements(replace(found, results=results))} == {"undecided"}


def test_each_cell_is_judged_against_the_baseline_with_an_interval() -> None:
    plan = bound_text(P1)
    equal = dict.fromkeys(TPS, 1000.0)
    verdicts = {(each.arm, each.load[2]): each for each in judgements(measured(plan, equal))}
    assert set(verdicts) == {("tuned", "tpcb-like"), ("tuned", "select-only")}
    for each in verdicts.values():
        assert each.effect is not None
        assert each.effect.low is not None
        assert each.effect.low < 0 < (each.effect.high or 0)
        assert each.verdict == "undecided"
        assert each.more_runs


def test_without_a_repeat_runs_differ_at_most_and_that_is_no_verdict() -> None:
    plan = bound_text(P1.replace("repeats = 2\n", ""))
    found = judgements(measured(plan, TPS))
    assert {each.verdict for each in found} == {"differ"}
    text = markdown(measured(plan, TPS))
    assert "got slower by 30 % (differ)" in text
    assert "each cell runs once, so machine drift looks like an effect" in text


def test_a_load_that_pgbench_limits_is_not_judged() -> None:
    plan = bound_text(P1)
    found = measured(plan, TPS)
    limited = {number: replace(each, doubts=("CLIENT-BOUND: pgbench",)) for number, each in found.results.items()}
    assert {each.verdict for each in judgements(replace(found, results=limited))} == {""}


def test_a_short_run_is_shown_and_not_judged() -> None:
    text = markdown(measured(bound_text(P1.replace("60s", "29s")), TPS))
    assert "runs of 29 s are shown but not judged" in text
    assert "got slower by 30 % (not judged" in text
    assert "| not judged |" in text


def test_both_tables_of_a_tuning_round_are_there() -> None:
    plan = bound_text(P1)
    steps = (("server-side generate", 381.29), ("vacuum", 273.85))
    made = {
        1: MadeData(stage=1, arm="default", scale=1, steps_s=steps, total_s=655.14),
        2: MadeData(stage=2, arm="tuned", scale=1, steps_s=(("vacuum", 208.34),), total_s=208.34),
    }
    text = markdown(replace(measured(plan, TPS), made=made))
    assert "| init step, s | default | tuned |" in text
    assert "| server-side generate | 381.29 |" in text
    assert "| vacuum | 273.85 | 208.34 |" in text
    assert "default: tpcb-like | default: select-only | tuned: tpcb-like | tuned: select-only |" in text
    for row in ("transactions", "failed", "latency avg, ms", "connect, ms", "tps"):
        assert f"\n| {row} |" in text


def test_endpoints_and_clients_have_a_row_each_and_failed_cells_their_reason() -> None:
    plan = bound_text(
        'time = "60s"\nclients = [10, 80, 600]\n[[endpoint]]\nname = "PostgreSQL"\n'
        '[[endpoint]]\nname = "PgBouncer"\naddress = ":6432"\n'
    )
    found = outcome(plan, {cell.number: 100.0 for cell in plan.cells})
    bad = next(cell for cell in plan.cells if (cell.endpoint, cell.clients) == ("PostgreSQL", 600))
    results = {**found.results, bad.number: CellResult(number=bad.number, reason="remaining connection slots")}
    text = markdown(replace(found, results=results))
    assert "| endpoint | clients | transactions | failed | latency avg, ms | connect, ms | tps |" in text
    row = next(line for line in text.splitlines() if line.startswith("| PostgreSQL | 600 |"))
    assert row.endswith("| failed: remaining connection slots |")
    assert len([line for line in text.splitlines() if line.startswith(("| PostgreSQL |", "| PgBouncer |"))]) == 6


def test_sizes_and_clients_make_a_matrix_with_charts() -> None:
    plan = bound_text('time = "60s"\nclients = [1, 2]\nscales = [1, 2]\npage_sizes = ["4kB", "2MB"]\n')
    found = outcome(plan, {cell.number: 100.0 * cell.clients for cell in plan.cells})
    assert "| scale | profile | clients | 4kB pages | 2MB pages |" in markdown(found)
    page = report_html("t", chapters(found))
    assert page.count("<svg") == 2
    assert "tps over clients: tpcb-like, scale 2" in page


def test_a_disk_that_was_the_limit_stands_beside_its_cell() -> None:
    plan = bound_text(P1)
    found = measured(plan, TPS)
    bound = replace(found.results[1], bound="the data disk vda: 6000 IOPS in 90 % of the run")
    text = markdown(replace(found, results={**found.results, 1: bound}))
    assert "bound by the data disk vda: 6000 IOPS in 90 % of the run" in text
    assert r" \* |" in text or " * |" in text


def test_the_best_by_the_objective_keeps_the_constraints() -> None:
    text = f'objective = "latency_ms"\n{P1}[constraints]\nlatency_ms_max = 1.5\n'
    plan = bound_text(text)
    found = measured(plan, TPS)
    slow = {
        cell.number: replace(found.results[cell.number], latency_ms=2.0) for cell in plan.cells if cell.arm == "tuned"
    }
    words = markdown(replace(found, results={**found.results, **slow}))
    assert "latency\\_ms is best with default (1); constraint violated: tuned (latency\\_ms 2)" in words


def test_the_best_is_called_certain_only_where_the_judge_says_so() -> None:
    plan = bound_text(P1)
    assert "tps is best with tuned (1501.5)" in (said := markdown(measured(plan, TPS)))
    assert "but not certainly" not in said
    close = {key: tps * 0.7 if key[0] == "tuned" and tps > 2000 else tps for key, tps in TPS.items()}
    close |= {("tuned", "tpcb-like"): 1002.0}
    said = markdown(measured(plan, close))
    assert "tps is best with tuned (1003.5), but not certainly" in said


def test_what_was_not_measured_keeps_no_constraint_and_is_no_objective() -> None:
    plan = bound_text(f"{P1}[constraints]\nconnect_ms_max = 5\n")
    said = markdown(measured(plan, TPS))
    assert "no configuration meets the constraints; constraint violated: " in said
    assert "default (connect\\_ms not measured)" in said
    said = markdown(measured(bound_text(f'objective = "p99_ms"\n{P1}'), TPS))
    assert "p99\\_ms was not measured" in said
    assert "meets the constraints" not in said


def test_cells_without_figures_are_counted() -> None:
    found = measured(bound_text(P1), TPS)
    lost = CellResult(number=1, reason="no data set")
    assert "8 of 8 cells, 1 without figures: " in markdown(replace(found, results={**found.results, 1: lost}))


def test_what_is_foreign_is_no_markup() -> None:
    plan = bound_text(P1.replace("tuned", "<b>|x"))
    found = measured(plan, {(arm.replace("tuned", "<b>|x"), profile): tps for (arm, profile), tps in TPS.items()})
    assert "<b>" not in report_html("t", chapters(found))
    assert "<b>" not in markdown(found)


def test_an_experiment_that_has_nothing_yet_has_a_report() -> None:
    assert "0 of 8 cells" in markdown(outcome(bound_text(P1), {}))


def test_the_status_says_what_is_done_runs_and_is_left() -> None:
    plan = bound_text(P1)
    some = replace(measured(plan, TPS), running=3)
    some = replace(some, results={number: each for number, each in some.results.items() if number < 3})
    lines = list(status_lines(some, 0, runs=True))
    assert "2 of 8 cells" in lines[1]
    assert lines[-2].endswith(": running")
    assert "7m14s left" in lines[-1]
    killed = list(status_lines(some, 0, runs=False))
    assert killed[-2].endswith(": lost")
    assert "`pgtop-tune experiment resume t-1`" in killed[-1]
    unsafe = list(status_lines(replace(some, plan=replace(plan, unsafe=True), workers=("a", "b")), 0, runs=False))
    assert "`pgtop-tune experiment resume t-1 --allow-unsafe --workers ADDRESS`" in unsafe[-1]


def test_the_plan_is_shown_with_cells_cost_and_end() -> None:
    text = "\n".join(plan_lines(bound_text(P1), 0, 2**30))
    assert "default (baseline): as it is" in text
    assert "tuned: work_mem=64" in text
    assert "takes 9m" in text
    assert "disk " in text


def test_what_somebody_else_does_is_named() -> None:
    before = {"": "1", "work_mem": "4096", "port": "1"}
    assert changes_between(before, dict(before)) == ""
    assert "restarted by someone else" in changes_between(before, {**before, "": "2"})
    assert "work_mem was changed by someone else: 4096 -> 8192" in changes_between(
        before, {**before, "work_mem": "8192"}
    )
    assert "port was changed by someone else: 1 -> default" in changes_between(before, {"": "1", "work_mem": "4096"})
