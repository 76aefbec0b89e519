"""What a change can bring at best is arithmetic over the latency budget; trials score it afterwards."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.advice.reach import _REACH, reach_of, reached
from pgtop_tune.experiment import prediction
from pgtop_tune.experiment.prediction import Prediction, Trial, inside, predict, prediction_words, score, score_words
from pgtop_tune.metrics.budget import BudgetPart, LatencyBudget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load_cpu import CpuUse
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import DiskSample
from pgtop_tune.model.setup import Measured, MeasuredLimit
from tests.support.frames import bench_sample, frame
from tests.support.host_frames import capped_disks, full_host

PARTS = (
    BudgetPart("CPU", "CPU", 2.0),
    BudgetPart("IO:WalSync", "IO", 2.2),
    BudgetPart("LWLock:WALWrite", "LWLock", 0.9),
    BudgetPart("Client:think", "Client", 3.0),
    BudgetPart("other", "other", 0.1),
)
BUDGET = LatencyBudget(
    total_ms=8.2, begun_ms=8.2, tps=1000.0, parts=PARTS, measured=True, window_s=10.0, counts=lambda kind: True
)  # fmt: skip
MACHINE = [frame(0, host=full_host(0))]
NAMES, VALUES, LOAD = ("commit_delay",), (("0", "1000"),), "tpcb-like -c 8 -M simple"


@pytest.fixture
def interval(monkeypatch: pytest.MonkeyPatch) -> Interval:
    monkeypatch.setattr(prediction, "latency_budget", lambda interval: BUDGET)
    return Interval([frame(0)])


def trial(
    relative: float, at_ms: int = 0, predicted: Prediction | None = None, names: tuple[str, ...] = NAMES
) -> Trial:
    return Trial(
        names=names, values=VALUES, load=LOAD, at_ms=at_ms, relative=relative, low=relative - 0.02,
        high=relative + 0.02, predicted=predicted,
    )  # fmt: skip


def test_removing_3_1_of_8_2_ms_lifts_a_closed_loop_by_at_most_61_per_cent(interval: Interval) -> None:
    found = predict(interval, NAMES, VALUES, (), LOAD)
    assert found is not None
    assert found.most == pytest.approx(8.2 / 5.1 - 1.0)
    assert found.removable_ms == pytest.approx(3.1)
    assert prediction_words(found) == (
        "at most +61 %: 3.1 of 8.2 ms (IO:WalSync 2.2, LWLock:WALWrite 0.9) could be saved"
    )


def test_a_transaction_of_a_fraction_of_a_millisecond_is_told_in_figures_that_say_something() -> None:
    found = Prediction(most=0.1, removable_ms=0.0064, of_ms=0.0723, waits=(("CPU", 0.0064),))
    assert prediction_words(found) == "at most +10 %: 0.0064 of 0.072 ms (CPU 0.0064) could be saved"


def bounded(budget: LatencyBudget, frames: list[Frame], *names: str) -> Prediction:
    found = prediction._bound(Interval(frames), budget, names)
    assert found is not None
    return found


def test_cpus_bound_a_change_that_does_not_save_cpu_time() -> None:
    """Four CPUs, 1.9 ms of CPU in a transaction: 2,105 transactions per second at most, 2,000 are made."""
    parts = (BudgetPart("CPU", "CPU", 1.9), BudgetPart("IO:WalSync", "IO", 6.0))
    budget = replace(BUDGET, total_ms=8.0, begun_ms=8.0, tps=2000.0, parts=parts)
    found = bounded(budget, MACHINE, *NAMES)
    assert (found.by, found.nothing) == ("the CPUs are saturated", False)
    assert found.most == pytest.approx(4000.0 / 1.9 / 2000.0 - 1.0)
    assert not bounded(budget, MACHINE, "jit").by, "it saves CPU time"
    nothing = bounded(replace(budget, parts=(replace(parts[0], ms=1.99), parts[1])), MACHINE, *NAMES)
    assert nothing.nothing
    assert prediction_words(nothing) == "at most +1 %: then the CPUs are saturated; no value can gain more than 4 %"


def test_waits_that_go_take_their_system_calls_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 0.28 ms on a CPU 60 % are system calls: without the flushes, 0.11 ms at least are left for four CPUs."""
    parts = (BudgetPart("CPU", "CPU", 0.28), BudgetPart("IO:WalSync", "IO", 0.69))
    budget = replace(BUDGET, total_ms=1.0, begun_ms=1.0, tps=8000.0, parts=parts)
    use = CpuUse(used=2.24, queued=0.0, system=0.6)
    monkeypatch.setattr(prediction, "cpu_of_load", lambda interval, window_s: use)
    assert bounded(budget, MACHINE, *NAMES).most == pytest.approx(1.0 / 0.31 - 1.0)
    # A wait of 0.05 ms held no more than 0.05 ms of system calls.
    short = replace(budget, parts=(parts[0], replace(parts[1], ms=0.05), BudgetPart("Client:think", "Client", 0.6)))
    few = bounded(replace(short, tps=17_000.0), MACHINE, *NAMES)
    assert few.by == "the CPUs are saturated"
    assert few.most == pytest.approx(4000.0 / 0.23 / 17_000.0 - 1.0)


def flushing(ceiling: float, clients: int = 2) -> list[Frame]:
    """950 flushes a second."""
    measured = Measured((MeasuredLimit("wal-flushes", "", ceiling, "1/s", ""),))
    made = []
    for second in (10, 11):
        load = bench_sample(second)
        each = frame(second, bench=replace(load, run=replace(load.run, clients=clients)))
        assert not isinstance(each.postgres, Unavailable)
        assert not isinstance(each.postgres.wal, Unavailable)
        wal = replace(each.postgres.wal, wal_syncs=950 * second)
        made.append(replace(each, postgres=replace(each.postgres, wal=wal), ceilings=measured))
    return made


def test_measured_flushes_bound_a_change_that_saves_none() -> None:
    """One commit per flush; 1,000 flushes are what the device does."""
    parts = (
        BudgetPart("CPU", "CPU", 0.4),
        BudgetPart("IO:WalSync", "IO", 0.9),
        BudgetPart("IO:DataFileRead", "IO", 3.0),
    )
    budget = replace(BUDGET, total_ms=4.3, begun_ms=4.3, tps=950.0, parts=parts)
    found = bounded(budget, flushing(1000.0), "effective_io_concurrency")
    assert found.most == pytest.approx(1000.0 / 950.0 - 1.0)
    assert prediction_words(found) == "at most +5 %: then the WAL device reaches its measured 1000 flushes/s"
    # Of eight clients four commit with each flush at best.
    assert not bounded(budget, flushing(1000.0, clients=8), "effective_io_concurrency").by
    assert not bounded(budget, flushing(1000.0), "synchronous_commit").by, "it saves flushes"


def capped(roles: tuple[str, ...] = ("data",), iops: float = 2400.0) -> list[Frame]:
    """2,000 requests a second until second 10."""

    def disks(second: int) -> DiskSample:
        sample = capped_disks(second)
        return replace(sample, disks=tuple(replace(each, cap_iops=iops, roles=roles) for each in sample.disks))

    return [frame(second, host=replace(full_host(second), disks=disks(second))) for second in (8, 9)]


def test_a_disk_near_its_cap_bounds_a_change_that_saves_no_io() -> None:
    parts = (BudgetPart("CPU", "CPU", 2.0), BudgetPart("IO:DataFileRead", "IO", 6.0))
    budget = replace(BUDGET, total_ms=8.0, begun_ms=8.0, tps=100.0, parts=parts)
    found = bounded(budget, capped(), "huge_pages")
    assert found.most == pytest.approx(0.2)
    assert prediction_words(found) == "at most +20 %: then vda is at its cap of 2400 requests/s"
    assert not bounded(budget, capped(), "shared_buffers").by, "it saves reads"
    assert not bounded(budget, capped(roles=()), "huge_pages").by, "nothing of the server lies there"


def test_locks_are_held_for_a_shorter_time_by_whom_a_change_makes_quicker() -> None:
    parts = (BudgetPart("IO:WalSync", "IO", 2.0), BudgetPart("Lock:transactionid", "Lock", 2.0))
    found = bounded(replace(BUDGET, total_ms=8.0, begun_ms=8.0, parts=parts), [frame(0)], *NAMES)
    assert found.most == pytest.approx(1.0)


def test_a_queue_for_the_cpus_is_no_gain_of_what_a_load_does_not_wait_for() -> None:
    parts = (BudgetPart("CPU", "CPU", 0.06), BudgetPart("CPU queue", "CPU", 0.03), BudgetPart("IO:WalSync", "IO", 1e-4))
    found = bounded(replace(BUDGET, total_ms=0.09, begun_ms=0.09, parts=parts), [frame(0)], *NAMES)
    assert found.nothing
    queue = (BudgetPart("IO:WalSync", "IO", 0.5), BudgetPart("Lock:tuple", "Lock", 99.0), BudgetPart("CPU", "CPU", 0.5))
    found = bounded(replace(BUDGET, total_ms=100.0, begun_ms=100.0, parts=queue), [frame(0)], *NAMES)
    assert found.removable_ms == pytest.approx(99.5), "a hundred wait for one that waits for its commit"


def test_earlier_trials_of_the_same_change_give_the_likely_value(interval: Interval) -> None:
    others = [
        trial(0.9, names=("work_mem",)),
        replace(trial(0.8), values=(("1000", "0"),)),
        replace(trial(0.7), load="select-only"),
        replace(trial(-0.6), low=None, high=None),
    ]
    found = predict(interval, NAMES, VALUES, [trial(0.12), trial(0.30), trial(0.20), *others], LOAD)
    assert found is not None
    assert (found.likely, found.likely_low, found.likely_high, found.trials) == (0.20, 0.12, 0.30, 3)
    assert prediction_words(found).endswith("; likely +12 % to +30 % (3 trials here)")
    alone = predict(interval, NAMES, VALUES, [trial(0.12)], LOAD)
    assert alone is not None
    assert alone.likely is None


def test_of_parameters_without_a_row_only_trials_speak(interval: Interval) -> None:
    names = ("cluster_name",)
    assert predict(interval, names, VALUES, (), LOAD) is None
    found = predict(interval, names, VALUES, [trial(0.1, names=names), trial(0.2, names=names)], LOAD)
    assert found is not None
    assert (found.most, found.likely) == (None, pytest.approx(0.15))


def test_a_trial_is_inside_when_it_reaches_the_bound_and_the_likely_range() -> None:
    told = Prediction(most=0.30, removable_ms=1.0, of_ms=4.0)
    assert inside(trial(0.10, predicted=told)) is True
    assert inside(trial(0.33, predicted=told)) is True
    assert inside(trial(0.40, predicted=told)) is False
    assert inside(trial(-0.50, predicted=told)) is True, "a bound is one from above"
    ranged = replace(told, likely=0.1, likely_low=0.08, likely_high=0.12, trials=3)
    assert inside(trial(0.15, predicted=ranged)) is True
    assert inside(trial(0.20, predicted=ranged)) is False
    assert inside(trial(0.10)) is None
    assert inside(trial(0.10, predicted=replace(told, most=9.6))) is None, "no bound cannot be wrong: nothing to score"
    assert prediction_words(replace(told, most=9.6)) == "", "a bound of +960 % is no information"
    assert inside(trial(0.20, predicted=replace(ranged, most=10.0))) is False
    assert inside(replace(trial(0.10, predicted=told), low=None)) is None


def test_the_score_is_of_the_newest_twenty() -> None:
    told = Prediction(most=0.30, removable_ms=1.0, of_ms=4.0)
    trials = [trial(0.1, at_ms, told) for at_ms in range(17)] + [trial(0.5, 20 + at_ms, told) for at_ms in range(3)]
    old = [trial(0.5, -10 - at_ms, told) for at_ms in range(30)]
    assert score_words(score([*old, *trials])) == "last 20 predictions: 17 inside"
    assert score_words(score(trials[:1])) == "last prediction: inside"
    assert score_words(score(trials[-1:])) == "last prediction: outside"
    assert score_words(score([])) == ""


def test_every_row_is_a_parameter_that_is_known_and_prefixes_match_events_of_all_majors() -> None:
    without_knob = {"vacuum_cost_delay", "track_wal_io_timing", "track_functions"}
    costs = {name for name in _REACH if name.startswith("cpu_")}
    assert {name for name in _REACH if name not in BY_NAME} <= without_knob | costs
    reach = reach_of(("commit_delay",)) or ()
    assert all(reached(label, reach) for label in ("IO:WalSync", "IO:WALSync", "LWLock:WALWrite", "IPC:SyncRep"))
    assert not any(reached(label, reach) for label in ("CPU", "IO:DataFileRead", "Client:think", "other"))
    work = reach_of(("huge_pages",)) or ()
    assert reached("CPU", work)
    assert reached("CPU queue", work)
