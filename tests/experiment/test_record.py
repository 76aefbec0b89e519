"""A run's record: complete, JSON through and through, and never a figure where there is none."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.compare.reports.result_tables import generator_table, level_table, seam_words
from pgtop_tune.experiment.record import record_of
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import ClientGroup, LoadLevel, PhaseSpan, RunState, Seam
from pgtop_tune.model.host import MachineLoad, NetworkLoad
from pgtop_tune.model.outage import AcknowledgedCommits, ClientCommits, OutageResult
from pgtop_tune.model.run_result import FORMAT, as_json
from tests.support.frames import EPOCH_MS
from tests.support.results import REPORT, asked, failed, never_began, result
from tests.support.run_frames import FACTS, SECONDS, TPS, evidence


def test_the_record_is_json_with_what_counts_first() -> None:
    record = json.loads(json.dumps(as_json(result()), allow_nan=False))
    assert list(record)[:5] == ["format", "tps", "percentiles", "validity", "command"]
    assert record["format"] == FORMAT
    assert record["tps"] == 1000.0
    assert {
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "p99.9_ms",
        "p99.99_ms",
        "max_ms",
        "mean_ms",
        "logged",
        "histogram",
        "counted",
        "counted_below_ms",
    } == set(record["percentiles"])
    assert record["validity"]["valid"] is True
    assert record["validity"]["doubts"][0]["id"] == "CLOSED-LOOP"
    assert len(record["progress"]) == SECONDS
    assert len(record["by_second"]) == SECONDS
    assert record["server"]["version"] == "18.6"
    assert record["host"]["hostname"] == "db1"
    assert record["scripts"] == [{"name": "tpcb-like", "weight": 1, "sha256": "", "statements": 7}]
    assert (record["stdout"], record["stderr"]) == ("out\n", "err\n")
    assert "raw" not in record["report"]
    assert as_json(result(run={"machine": "ssh://load1"}))["machine"] == "ssh://load1"


def test_the_json_of_an_outage_has_the_missing_commits_or_null_where_they_are_unknown() -> None:
    lost = ClientCommits(group=1, client=0, acknowledged=9, committed=7, in_doubt=1)
    killed = replace(lost, client=1, unknown="its pgbench was killed")

    def commits(*clients: ClientCommits) -> dict[str, object]:
        through = replace(result(), outage=OutageResult(commits=AcknowledgedCommits(clients)))
        totals = as_json(through)["outage"]["commits"]
        return {name: totals[name] for name in ("missing", "acknowledged", "in_doubt", "unknown_clients")}

    assert commits(lost, killed) == {"missing": 2, "acknowledged": 9, "in_doubt": 2, "unknown_clients": 1}
    assert commits(killed)["missing"] is None


def test_percentiles_of_the_run_are_those_of_its_seconds_together() -> None:
    record = as_json(result())
    assert record["percentiles"]["logged"] == sum(second["logged"] for second in record["by_second"].values())
    assert record["percentiles"]["max_ms"] == max(second["max_ms"] for second in record["by_second"].values())
    values = [record["percentiles"][f"p{q}_ms"] for q in ("50", "95", "99", "99.9", "99.99")]
    assert values[-1] is None, "p99.99 needs 100,000"
    assert values[:-1] == sorted(values[:-1])


def test_of_a_run_that_was_stopped_the_mean_of_its_seconds_is_kept_and_marked() -> None:
    record = as_json(result(state=RunState.STOPPED, tps=123.0))
    assert record["tps"] == pytest.approx(TPS)
    assert (record["validity"]["valid"], record["validity"]["partial"]) == (False, True)


def test_a_failed_run_has_its_reason_and_is_not_valid() -> None:
    made = failed()
    assert (made.valid, made.partial) == (False, True)
    assert as_json(made)["exit_status"] == 1
    assert "sorry" in made.doubts[0].reason


def test_a_run_that_never_began_is_a_record_too() -> None:
    record = json.loads(json.dumps(as_json(never_began()), allow_nan=False))
    assert (record["tps"], record["percentiles"], record["report"]) == (None, None, None)
    assert record["validity"]["doubts"][0]["advice"] == "create them first"


def test_with_a_rate_the_loop_is_open_and_said_to_be() -> None:
    made = result(asked(rate=float(TPS)), run={"rate_per_s": float(TPS)})
    assert made.open_loop
    assert made.doubts == ()
    assert not result().open_loop


def test_connecting_each_time_has_the_time_of_connecting_each_time() -> None:
    words = asked()
    each_time = replace(words, spec=replace(words.spec, connect_per_transaction=True))
    assert result(each_time).connection_ms is None
    assert result(words).connection_ms == 12.5


def test_what_was_set_for_the_server_is_in_the_record_and_what_was_not_is_not() -> None:
    made = result(facts=replace(FACTS, tables=()))
    assert made.server["settings"] == {}


def test_levels_have_every_transaction_and_figures_without_the_seconds_of_a_change() -> None:
    def at(second: float) -> int:
        return EPOCH_MS + round(1000 * second)

    seams = {
        31: (Seam(at(30.2), at(31.4), LoadLevel(16), LoadLevel(32), connection_ms=40.0, lost=900.0),),
        51: (Seam(at(50.1), at(50.3), LoadLevel(32), LoadLevel(0)),),
    }
    group = ClientGroup(number=1, clients=16, rate_per_s=None, threads=4, started_ms=EPOCH_MS, command="pgbench")
    made = evidence(
        run={"groups": (group, replace(group, number=2, started_ms=at(30.2)))},
        lines=lambda second: {"left_out": second in (31, 32) or second > 50},
    )
    frames = [
        frame if isinstance(frame.bench, Unavailable) else replace(
            frame, bench=replace(frame.bench, seams=seams.get(round(frame.elapsed_s), ()))
        )
        for frame in made.frames
    ]  # fmt: skip
    record = record_of(asked(), replace(made, frames=tuple(frames)), REPORT, ("", ""), at(70))
    logged = sum(second.logged for second in made.latencies)
    assert [level.name for level in record.levels] == ["×16", "×32", "paused"]
    assert sum(level.transactions for level in record.levels) == logged
    assert [level.seconds for level in record.levels] == [30, 18, 0]
    assert record.levels[2].tps is None
    assert record.latencies is not None
    assert record.latencies.logged < logged
    assert "LOAD-CHANGED" in {doubt.id for doubt in record.doubts}
    assert record.steady.steady is None
    assert [row[0] for row in level_table(record).rows] == ["×16", "×32", "paused"]
    assert "new clients connected in 40 to 40 ms" in seam_words(record)
    assert as_json(record)["levels"][0]["latencies"]["logged"] > 0


def test_transactions_of_a_level_are_estimated_where_the_log_has_a_share_of_them() -> None:
    spans = (PhaseSpan("1: hold 70s", LoadLevel(2), EPOCH_MS, EPOCH_MS + 70_000),)
    [whole], [sampled] = (
        record_of(asked(), evidence(run={"spans": spans, "sampling_rate": rate}), REPORT, ("", ""), EPOCH_MS).levels
        for rate in (1.0, 0.5)
    )
    assert sampled.transactions == 2 * whole.transactions > 0
    assert sampled.tps == pytest.approx(2 * (whole.tps or 0.0))


def test_machines_of_a_load_have_their_traffic_beside_the_server_s_and_unknown_is_not_0() -> None:
    traffic = NetworkLoad(
        interface="eth0\x1b[1m",
        received_bytes_per_s=50e6,
        received_packets_per_s=900.4,
        sent_bytes_per_s=100e6,
        sent_packets_per_s=800.0,
        speed_bits_per_s=1_000_000_000,
    )
    group = ClientGroup(
        number=1,
        clients=8,
        rate_per_s=None,
        threads=4,
        started_ms=EPOCH_MS,
        command="pgbench",
        machine="ssh://a",
        cpus=0.5,
        network=traffic,
    )
    other = replace(group, machine="ssh://b", cpus=None, network=replace(traffic, speed_bits_per_s=None))
    away = replace(other, machine="ssh://c", network=None)
    made = record_of(asked(), evidence(run={"groups": (group, other, away)}), REPORT, ("", ""), EPOCH_MS + 70_000)
    assert made.server_load.cpus is not None
    assert result().server_load == MachineLoad()
    table = generator_table(made)
    cells = [[cell.strip() for cell in row[5:12]] for row in table.rows]
    assert cells[0] == ["0.50", "eth0␛[1m", "47.7 MB/s", "95.4 MB/s", "900", "800", "80"]
    assert (cells[1][0], cells[1][-1]) == (UNKNOWN, UNKNOWN)
    assert cells[2] == [UNKNOWN] * 7
    assert (table.rows[3][0], cells[3][0]) == ("server", f"{made.server_load.cpus:.2f}")
    assert as_json(made)["groups"][0]["network"]["sent_bytes_per_s"] == 100e6


def test_the_mean_of_a_load_that_changed_is_that_of_all_its_seconds() -> None:
    group = ClientGroup(number=1, clients=2, rate_per_s=None, threads=1, started_ms=EPOCH_MS, command="pgbench")
    made = evidence(
        run={"groups": (group, replace(group, number=2, started_ms=EPOCH_MS + 20_000))},
        tps=lambda second: 9000.0 if second <= 20 else 100.0,
        lines=lambda second: {"left_out": second in (20, 21)},
    )
    record = record_of(asked(), made, replace(REPORT, tps=None), ("", ""), EPOCH_MS + 70_000)
    assert record.steady.tps == pytest.approx(record.tps)
    assert record.levels == (), "no frame has the seam"


def test_a_second_in_which_a_pause_ends_belongs_to_the_load_after_it() -> None:
    begins = {"1: hold 30s": (2, 0), "2: pause 10s": (0, 30_000), "3: hold 20s": (2, 40_600)}
    spans = tuple(PhaseSpan(name, LoadLevel(clients), EPOCH_MS + at_ms) for name, (clients, at_ms) in begins.items())
    made = evidence(run={"spans": spans})
    record = record_of(asked(), made, REPORT, ("", ""), EPOCH_MS + 70_000)
    in_pause = [row.logged for row in made.latencies if 30 <= row.second - EPOCH_MS // 1000 < 40]
    assert in_pause
    assert record.levels[1].transactions == sum(in_pause)
