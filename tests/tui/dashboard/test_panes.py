"""What single panes say: in trouble, without a load, and where numbers have to add up."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.host import DiskSample, OtherProgram, ProcessSample
from pgtop_tune.model.postgres import HIDDEN_QUERY
from pgtop_tune.model.waits import WaitCount, WaitSample
from pgtop_tune.runtime.ports import RecordingState
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.explain import PANE_METRICS, explain_lines
from pgtop_tune.tui.dashboard.host import host_lines
from pgtop_tune.tui.dashboard.latency import latency_lines
from pgtop_tune.tui.dashboard.screen import PANES, DashboardState, dashboard_tape
from pgtop_tune.tui.dashboard.throughput import throughput_lines
from pgtop_tune.tui.dashboard.waits import budget_lines, stacked_waits
from pgtop_tune.tui.dashboard.wal import wal_lines
from pgtop_tune.tui.scene.header import ago, header_line
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, Glyphs, plain_text
from pgtop_tune.tui.widgets.lines import width as cells_of
from pgtop_tune.tui.widgets.phrase import Phrase, absent, fitting
from pgtop_tune.tui.widgets.time_axis import CHARTED, time_axis
from tests.support.frames import EPOCH_MS, backend, bench_sample, facts, host_sample, postgres_sample, session_of
from tests.support.host_frames import cgroup
from tests.support.pictures import pane_text

TARGET = "bench@/run/postgresql:5432/bench"
REFUSED = Unavailable(Reason.NO_ANSWER, "connection refused; trying again")


def header(session: Session, width: int = 160, look: DashboardState | None = None) -> str:
    look = look or DashboardState()
    return plain_text(
        header_line(session, width, UNICODE, recording=look.recording, offset_s=look.offset_s, target=look.target)
    )


def outage(second: int) -> dict[str, object]:
    """The server is away from second 50 to 55 and comes back with counters that begin anew."""
    if 50 <= second < 56:
        return {"postgres": REFUSED}
    if second < 56:
        return {}
    fresh = postgres_sample(second - 56)
    moved = {
        name: replace(getattr(fresh, name), at_s=float(second))
        for name in ("waits", "database", "wal", "checkpoints", "statements")
    }
    back = facts(started_ms=EPOCH_MS + 55_000)
    return {"postgres": replace(fresh, server=back, activity=postgres_sample(second).activity, **moved)}


def test_server_that_does_not_answer_is_said_in_red_and_the_host_lives_on() -> None:
    session = session_of(53, charted=CHARTED, load=False, change=outage)
    line = header_line(session, 120, UNICODE)
    assert ("no answer: connection refused; trying again", "critical") in line
    assert "53 %  █postgres   -" in plain_text(host_lines(session, 120, 3, UNICODE)[0])
    assert "connection refused" in pane_text(session, "sessions", 120, 40)


def test_restart_gives_a_gap_and_no_spike() -> None:
    first = session_of(57, charted=CHARTED, load=False, change=outage)
    assert "server     -" in "".join(map(plain_text, throughput_lines(first, 120, 5, UNICODE)))
    assert "WAL         -" in plain_text(wal_lines(first, 120, 1, UNICODE)[0])
    later = session_of(80, charted=CHARTED, load=False, change=outage)
    lines = [plain_text(line) for line in throughput_lines(later, 120, 5, UNICODE)]
    assert re.search(r"server +1[0-3]\d\d", "".join(lines))
    assert lines[1].startswith(" 1500"), "the scale is that of the true rates"
    first_column, last_column = (7 + (time_axis(later, 120, 5).column_of(at_s) or 0) for at_s in (52, 55))
    gap = "".join(line[first_column:last_column] for line in lines[1:])
    assert gap
    assert set(gap) <= set(" ┊┈")
    assert "up 24 s" in header(later)


def test_without_a_load_the_server_alone_has_throughput_and_latency_says_what_measures_it() -> None:
    session = session_of(30, charted=CHARTED, load=False)
    assert "client" not in plain_text(throughput_lines(session, 120, 5, UNICODE)[0])
    for height in (1, 5):
        words = "".join(map(plain_text, latency_lines(session, 120, height, UNICODE, load_key="f5")))
        assert "a load measures latency (press f5)" in words
        where_none_can_be_started = "".join(map(plain_text, latency_lines(session, 120, height, UNICODE)))
        assert "only a load measures latency" in where_none_can_be_started
        assert "press" not in where_none_can_be_started


def test_after_a_load_its_curve_stays_and_its_numbers_are_unknown() -> None:
    def change(second: int) -> dict[str, object]:
        sample = bench_sample(second)
        ended = replace(sample.run, state=RunState.FINISHED, exit_status=0)
        return {"bench": sample if second < 40 else replace(sample, run=ended, progress=(), latencies=())}

    session = session_of(60, charted=CHARTED, change=change)
    chart = "".join(map(plain_text, latency_lines(session, 120, 6, UNICODE)))
    assert "p99        -" in chart
    assert "▆" in chart
    assert "finished" in plain_text(throughput_lines(session, 120, 6, UNICODE)[0])


def test_load_that_failed_says_why_in_pgbenchs_words() -> None:
    run = replace(bench_sample(5).run, state=RunState.FAILED, message='relation "pgbench_accounts" does not exist')
    session = session_of(6, charted=CHARTED, change=lambda second: {"bench": bench_sample(second, run=run)})
    assert 'pgbench failed: relation "pgbench_accounts"' in plain_text(throughput_lines(session, 120, 6, UNICODE)[0])


def test_a_load_that_was_ended_early_says_why() -> None:
    ended = replace(
        bench_sample(5).run, state=RunState.STOPPED, ended_for="OVERLOADED", message="since second 9 the backlog"
    )
    for seconds, said in ((6, "OVERLOADED: since second 9 the backlog"), (90, "stopped")):
        session = session_of(seconds, charted=CHARTED, change=lambda second: {"bench": bench_sample(second, run=ended)})
        assert said in plain_text(throughput_lines(session, 120, 6, UNICODE)[0])


def test_a_load_that_failed_hides_the_server_s_throughput_at_no_time() -> None:
    """The words of pgbench filled the head until the next load: of a load of others no figure was left."""
    run = replace(bench_sample(5).run, state=RunState.FAILED, message="WARNING: terminating connection " * 4)
    for seconds, said in ((6, "pgbench failed: WARNING"), (90, "failed")):
        made = {second: {"bench": bench_sample(second, run=run), "events": ()} for second in range(seconds)}
        session = session_of(seconds, charted=CHARTED, change=made.__getitem__)
        for width in (80, 120, 200):
            title, *chart = map(plain_text, throughput_lines(session, width, 6, UNICODE))
            assert "server " in "".join(chart), chart
            assert (said in title) == (seconds == 6 or width > 80), title
            assert ("WARNING" in title) == (seconds == 6), title


@pytest.mark.parametrize("height", [4, 5, 9])
def test_the_percentiles_of_the_last_second_stand_beside_their_curves_or_in_the_head(height: int) -> None:
    session = session_of(30, charted=CHARTED)
    newest = session.latency.newest()
    assert newest is not None
    title, *chart = map(plain_text, latency_lines(session, 120, height, UNICODE))
    beside = "\n".join([title, *(line[-13:] for line in chart)])
    shown = {name: float(value) for name, value in re.findall(r"(p[\d.]+|max) +([\d.]+) ms", beside)}
    p50, p95, p99, _ = newest.quantiles_ms
    assert shown == pytest.approx({"p50": p50, "p95": p95, "p99": p99, "max": newest.max_ms}, rel=0.01)
    assert re.search(r"p99\.9 +- ", title), "of too few transactions"


def test_missing_extension_is_named_in_the_place_of_its_number() -> None:
    missing = Unavailable(Reason.NO_EXTENSION, "pg_stat_statements: not loaded (needs shared_preload_libraries)")
    session = session_of(
        3, charted=CHARTED, change=lambda second: {"postgres": postgres_sample(second, statements=missing)}
    )
    wide, narrow = (plain_text(throughput_lines(session, width, 5, UNICODE)[0]) for width in (180, 80))
    assert "qps pg_stat_statements: not loaded (needs shared_preload_libraries)" in wide
    assert "qps -" in narrow


@pytest.mark.parametrize("chart_rows", [1, 5, 8])
@pytest.mark.parametrize("seconds", [40, 115, 400])
def test_marks_on_the_tape_stand_in_the_columns_of_both_charts(chart_rows: int, seconds: int) -> None:
    session = session_of(seconds, charted=CHARTED)
    tape = plain_text(dashboard_tape(session, 120, UNICODE, chart_rows=chart_rows))
    axis = time_axis(session, 120, chart_rows)
    loads = [index for index, char in enumerate(tape) if char == "▲"]
    per_s = axis.columns / (axis.until_s - axis.since_s)
    happened = [at_s for at_s in (12, 20, 100) if at_s < seconds and axis.since_s <= at_s < axis.until_s]
    assert loads == [7 + int((at_s - axis.since_s) * per_s) for at_s in happened]
    if chart_rows == 1:
        return
    for draw in (throughput_lines, latency_lines):
        lines = draw(session, 120, chart_rows, UNICODE)
        uprights = {index for line in lines[1:] for index, char in enumerate(plain_text(line)) if char == "┊"}
        assert uprights == set(loads)


def test_budget_adds_up_to_the_latency_with_bars_and_with_what_has_no_room() -> None:
    session = session_of(30)
    for width, height in ((120, 4), (80, 3), (250, 3), (80, 2), (60, 2)):
        title, *rows = (plain_text(line) for line in budget_lines(session, width, height, UNICODE))
        whole = re.search(r"transaction's ([\d.]+) ms", title)
        assert whole
        parts = re.findall(r"(?:[A-Z]\w+(?::\w+)?|other|\d+ more) +(\d+\.\d+)", "\n".join(rows))
        assert sum(map(float, parts)) == pytest.approx(float(whole[1]), abs=0.04)
        assert rows[-1].rstrip(" █▏▎▍▌▋▊▉").split()[-2] == "other"


def test_without_throughput_the_budget_shows_active_sessions() -> None:
    waits = WaitSample(1.0, 10, (WaitCount("IO", "DataFileRead", "client backend", 25),))
    session = session_of(1, load=False, change=lambda second: {"postgres": postgres_sample(second, waits=waits)})
    text = "".join(map(plain_text, budget_lines(session, 80, 2, UNICODE)))
    assert "2.50 active sessions" in text
    assert "IO:DataFileRead 2.50" in text


def test_where_nobody_looked_the_budget_says_no_number() -> None:
    waits = WaitSample(1.0, 0, ())
    session = session_of(1, load=False, change=lambda second: {"postgres": postgres_sample(second, waits=waits)})
    assert "waits of - active sessions" in "".join(map(plain_text, budget_lines(session, 80, 2, UNICODE)))


def test_waits_that_a_role_may_not_see_are_hidden_and_not_idle() -> None:
    def change(second: int, *seen: WaitCount) -> dict[str, object]:
        others = backend(second, EPOCH_MS, backend_type=None, query=HIDDEN_QUERY)
        activity = replace(postgres_sample(second).activity, backends=(others,))  # type: ignore[type-var]
        waits = WaitSample(float(second), 10, seen)
        return {"postgres": postgres_sample(second, activity=activity, waits=waits)}

    hidden = session_of(3, load=False, change=change)
    for lines in (budget_lines(hidden, 120, 3, UNICODE), stacked_waits(hidden, 120, 6, UNICODE)):
        assert "other users' sessions are hidden: GRANT pg_monitor TO bench" in plain_text(lines[0])
    for lines in (budget_lines(hidden, 60, 3, UNICODE), stacked_waits(hidden, 60, 6, UNICODE)):
        words = " ".join(plain_text(line) for line in lines)
        assert "GRANT pg_monitor TO bench" in " ".join(words.split()), "not cut where there is room below"
        assert all(cells_of(line) == 60 for line in lines)
    count = WaitCount("IO", "DataFileRead", "client backend", 25)
    own = session_of(3, load=False, change=lambda second: change(second, count))
    assert "IO:DataFileRead" in "".join(map(plain_text, budget_lines(own, 120, 2, UNICODE)))


def test_data_disk_comes_first_then_wal_then_the_busiest() -> None:
    def change(second: int) -> dict[str, object]:
        disks = host_sample(second).disks
        assert isinstance(disks, DiskSample)
        busier = replace(disks.disks[2], name="vdz", busy_ms=600 * second)
        stack = replace(busier, name="dm-0", stacked=True)
        return {"host": host_sample(second, disks=replace(disks, disks=(stack, *disks.disks, busier)))}

    lines = [plain_text(line) for line in host_lines(session_of(5, change=change), 160, 6, UNICODE)]
    assert [line.split("busy  ")[1].split()[0] for line in lines[2:]] == ["vda", "nvme1n1", "vdz", "vdb"]


def test_room_that_no_disk_needs_has_load_and_memory_details() -> None:
    def change(second: int) -> dict[str, object]:
        disks = host_sample(second).disks
        assert isinstance(disks, DiskSample)
        return {"host": host_sample(second, disks=replace(disks, disks=disks.disks[:1]))}

    assert "load 8.31/7.90/6.20" in plain_text(host_lines(session_of(5, change=change), 160, 4, UNICODE)[3])


def test_data_directory_on_no_known_device_says_why() -> None:
    def change(second: int) -> dict[str, object]:
        unplaced = ("data: overlay has no device",)
        return {"host": host_sample(second, disks=DiskSample(float(second), (), unplaced))}

    assert "data: overlay has no device" in "".join(
        plain_text(line) for line in host_lines(session_of(3, change=change), 160, 3, UNICODE)
    )


def test_each_missing_section_of_the_host_says_why_in_its_own_line() -> None:
    psi = Unavailable(Reason.NOT_SUPPORTED, "kernel without PSI, boot with psi=1")
    memory = Unavailable(Reason.NO_PERMISSION, "meminfo may not be read")
    session = session_of(3, change=lambda second: {"host": host_sample(second, pressure=psi, memory=memory)})
    cpu, mem, disk = (plain_text(line) for line in host_lines(session, 160, 3, UNICODE))
    assert "█postgres" in cpu
    assert "psi kernel without PSI, boot with psi=1" in cpu
    assert mem.split(maxsplit=1)[1].strip() == "meminfo may not be read"
    assert " 98 %  busy  vda" in disk


def test_384_cores_fit_beside_the_numbers() -> None:
    line = plain_text(host_lines(session_of(3, cores=384), 200, 3, UNICODE)[0])
    assert "384 cores" in line
    assert "queue" in line


def with_others(*programs: OtherProgram) -> Callable[[int], dict[str, object]]:
    """The server's backends, pgbench and this program at work, and other programs."""

    def change(second: int) -> dict[str, object]:
        host = host_sample(second, [2_000, *range(2_231, 2_247), 4_000, 4_001])
        assert isinstance(host.processes, ProcessSample)
        return {"host": replace(host, processes=replace(host.processes, others=programs))}

    return change


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_cpu_gauge_has_a_filling_for_each_user_and_its_figures_add_up_to_the_busy_time(glyphs: Glyphs) -> None:
    line = plain_text(host_lines(session_of(5, change=with_others()), 120, 3, glyphs)[0])
    bar = line[6:22]
    postgres, _, others, _ = glyphs.densities
    assert bar == 4 * postgres + 4 * others + 8 * glyphs.speck
    shown = re.findall(rf"(?:{'|'.join(map(re.escape, glyphs.densities))})([a-z]+) +(\d+)", line[29:])
    assert [name for name, _ in shown] == ["postgres", "ours", "others", "steal"]
    assert sum(int(figure) for _, figure in shown) == int(line[22:26])


def test_users_of_cpus_that_are_not_known_are_dashes_and_their_part_of_the_bar_is_a_line_of_its_own() -> None:
    silent = Unavailable(Reason.FAILED, "processes cannot be read")
    session = session_of(5, change=lambda second: {"host": host_sample(second, processes=silent)})
    line = plain_text(host_lines(session, 120, 3, UNICODE)[0])
    assert line[6:22] == 8 * "━" + 8 * "·"
    assert "53 %  █postgres   - ▓ours   - ▒others   -  ░steal   0" in line


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200, 250])
def test_names_of_other_programs_are_safe_and_move_nothing(width: int) -> None:
    evil = OtherProgram(29_788, "\x1b[31m" + "界" * 63, 93.0)
    quiet, named, other = (
        host_lines(session_of(5, change=with_others(*programs)), width, 3, UNICODE)
        for programs in ((), (evil, evil), (OtherProgram(7, "pip", 99.4), OtherProgram(8, "a", 10.0)))
    )
    assert {cells_of(line) for lines in (quiet, named, other) for line in lines} == {width}
    at = plain_text(other[0]).find("pip")
    assert at > 0 or width == 60
    assert plain_text(named[0])[:at] == plain_text(other[0])[:at]
    assert plain_text(quiet[0])[: at - 30] == plain_text(other[0])[: at - 30]
    assert "\x1b" not in plain_text(named[0])


def test_a_disk_with_a_cap_is_a_gauge_of_the_cap() -> None:
    def change(second: int) -> dict[str, object]:
        disks = host_sample(second).disks
        assert isinstance(disks, DiskSample)
        capped = tuple(replace(disk, cap_iops=12_000.0) if disk.name == "vda" else disk for disk in disks.disks)
        return {"host": host_sample(second, disks=replace(disks, disks=capped))}

    line = plain_text(host_lines(session_of(5, change=change), 120, 3, UNICODE)[2])
    assert line.startswith(" DISK ████████········  50 %  of 12.0k IOPS")
    assert "busy  98 %" in line


def test_limits_of_the_control_group_stand_beside_the_gauges() -> None:
    def change(second: int) -> dict[str, object]:
        return {"host": host_sample(second, cgroup=cgroup(second))}

    cpu, mem, _ = (plain_text(line) for line in host_lines(session_of(5, change=change), 160, 3, UNICODE))
    assert "limit 2 CPUs throttled  20 %" in cpu
    assert "limit 12.0 GB of 16.0 GB" in mem


def test_header_says_who_where_which_role_and_what_watching_costs() -> None:
    text = header(session_of(100), 200, DashboardState(recording=RecordingState("x.jsonl", since_s=39.0)))
    assert "db1 · bench@/run/postgresql:5432 · PostgreSQL 18.6 primary · up 3d04h" in text
    assert "● rec  01:00" in text
    assert "own cost 1.4 % CPU  1.90 kB/s  server 3.1 ms/s" in text


def test_header_keeps_the_role_and_the_clock_when_room_is_short() -> None:
    session = session_of(
        100, change=lambda second: {"postgres": postgres_sample(second, server=facts(in_recovery=True))}
    )
    text = header(session, 60, DashboardState(recording=RecordingState("x.jsonl", since_s=0.0)))
    assert "standby" in text
    assert "● rec  21:21:39 every 1 s" in text


def test_a_long_database_name_leaves_room_for_host_and_version() -> None:
    wide = facts(database="漢" * 21)
    session = session_of(100, change=lambda second: {"postgres": postgres_sample(second, server=wide)})
    text = header(session, 60, DashboardState())
    assert re.match(r" 漢{7} ?… @ db1 · 18\.6 primary", text), text


@pytest.mark.parametrize("rows", [2, 3])
def test_a_reason_with_too_little_room_begins_in_the_head_and_is_marked_where_it_is_cut(rows: int) -> None:
    reason = Unavailable(Reason.NO_PERMISSION, "other users' sessions are hidden: GRANT pg_monitor TO shop_reader")
    words = " ".join(plain_text(line).rstrip(" ─") for line in absent("waits", reason, 60, rows, UNICODE))
    assert " ".join(words.split()).endswith("GRANT pg_monitor TO shop_reader"), words
    words = [plain_text(line) for line in absent("waits", reason, 40, rows, UNICODE)]
    assert (len(words), words[-1].rstrip().endswith("…")) == (rows, rows == 2), words


def test_the_header_has_the_interval_asked_for_however_late_a_frame_comes() -> None:
    session = session_of(100, change=lambda second: {"interval_s": 0.7})
    assert " every 0.7 s" in header(session, 120, DashboardState())


def test_recording_that_stopped_by_itself_is_not_overlooked() -> None:
    text = header(session_of(3), 80, DashboardState(recording=RecordingState(problem="no space left on device")))
    assert "rec stopped: no space left on device" in text


@pytest.mark.parametrize(("seconds", "shown"), [(13, "−13s"), (133, "−2m 13s"), (3733, "−1h 02m 13s")])
def test_clock_of_the_past(seconds: float, shown: str) -> None:
    assert ago(seconds, UNICODE) == shown
    assert shown in header(session_of(3), 80, DashboardState(offset_s=seconds, recording=RecordingState("x")))


def test_a_recording_that_goes_on_is_seen_from_the_past_too() -> None:
    past = DashboardState(offset_s=133.0, recording=RecordingState("run.jsonl", since_s=1.0))
    for columns in (80, 120):
        assert "−2m 13s  ● rec " in header(session_of(3), columns, past)
    stopped = DashboardState(offset_s=133.0, recording=RecordingState(problem="disk full"))
    assert "✗ rec stopped: disk full" in header(session_of(3), 120, stopped)


def test_wal_says_when_and_why_the_next_checkpoint_comes() -> None:
    wide = plain_text(wal_lines(session_of(30), 250, 1, UNICODE)[0])
    assert re.search(r"next checkpoint +\S+(?: s)? \(max_wal_size\)", wide)
    assert "checkpoints 212 timed, 31 requested" in wide
    assert re.search(r"buffers: ckpt +61 bgw +8.0 backends +31 %", wide)


def test_checkpointer_we_may_not_ask_leaves_wal_where_it_is() -> None:
    gone = Unavailable(Reason.NO_PERMISSION, "needs pg_monitor")
    session = session_of(5, change=lambda second: {"postgres": postgres_sample(second, checkpoints=gone)})
    first, second = (plain_text(line) for line in wal_lines(session, 120, 2, UNICODE))
    assert re.search(r"WAL 8\d\.\d MB/s", first)
    assert second.strip() == "needs pg_monitor"


def test_every_pane_with_numbers_explains_them() -> None:
    assert set(PANE_METRICS) == set(PANES) - {"tape", "footer"}
    for pane in PANE_METRICS:
        text = " ".join(" ".join(plain_text(line).split()) for line in explain_lines(pane, 60))
        for metric in PANE_METRICS[pane]:
            assert " ".join(metric.definition.split()) in text
            assert metric.source
    assert "red from" in " ".join(map(plain_text, explain_lines("host", 80)))


def test_facts_shorten_before_any_goes_and_lengthen_when_there_is_room() -> None:
    phrases = [Phrase((("first", ""),)), Phrase((("second", ""),), 2, (("2nd", ""),)), Phrase((("third", ""),), 1)]
    joined = {cells: plain_text(fitting(phrases, cells, (" ", ""))) for cells in (18, 17, 12, 11, 5, 3)}
    assert joined == {
        18: "first second third",
        17: "first 2nd third",
        12: "first third",
        11: "first third",
        5: "first",
        3: "fi…",
    }


@pytest.mark.parametrize(("standby", "said"), [(True, "restartpoints"), (False, "checkpoints")])
def test_a_standby_makes_restartpoints(standby: bool, said: str) -> None:
    session = session_of(
        20, change=lambda second: {"postgres": postgres_sample(second, server=facts(in_recovery=standby))}
    )
    words = " ".join(plain_text(line) for line in wal_lines(session, 160, 2, UNICODE))
    assert re.search(rf"· {said} \d+ timed", words)


def test_why_there_is_no_answer_stands_in_the_header_without_who_was_asked_twice() -> None:
    why = f"no answer for 10 s: {TARGET}: no answer in time; trying again"
    session = session_of(
        3, charted=CHARTED, load=False, change=lambda second: {"postgres": Unavailable(Reason.NO_ANSWER, why)}
    )
    line = header_line(session, 80, UNICODE, target=TARGET)
    assert "no answer for 10 s: no answer in time; trying again" in plain_text(line)
    for pane in ("budget", "wal"):
        words = pane_text(session, pane, 80, 24)
        assert "no answer for 10 s" in words
        assert "in time" not in words


def test_a_server_that_never_answered_is_not_named_in_every_pane() -> None:
    refused = Unavailable(Reason.NO_ANSWER, f"{TARGET}: password authentication failed")
    session = session_of(3, charted=CHARTED, load=False, change=lambda second: {"postgres": refused})
    for pane, named in (("budget", 0), ("wal", 0), ("sessions", 1)):
        words = pane_text(session, pane, 80, 24)
        assert "password authentication failed" in words
        assert words.count(TARGET) == named


def test_at_80_columns_the_header_has_the_endpoint_and_the_interval_before_its_own_cost() -> None:
    """Also while a recording runs, which is never left out."""
    for recording in (None, RecordingState("run.jsonl", 2.0, 100)):
        line = plain_text(header_line(session_of(30), 80, UNICODE, recording=recording))
        assert line.startswith(" bench @ db1 · ")
        assert "/run/postgresql:5432" in line
        assert " every 1 s" in line, line
        assert ("rec" in line) is (recording is not None)
    assert "own" not in line


def test_from_100_columns_on_the_length_of_the_recording_and_its_own_cost_come_before_the_user_of_the_server() -> None:
    line = plain_text(header_line(session_of(30), 100, UNICODE, recording=RecordingState("run.jsonl", 2.0, 100)))
    assert re.search(r"rec  00:\d\d  \d\d:\d\d:\d\d every 1 s  own cost .* % CPU $", line), line
