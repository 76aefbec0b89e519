"""The throughput pane says what a change did, in the longest form that has room, and nothing jumps about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.since_change import SinceChange
from pgtop_tune.compare.statistics.effect import Effect, Verdict
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress, RunState
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.throughput import since_short, since_title, throughput_lines
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, Line, plain_text, width
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import EPOCH_MS, bench_sample, frame, session_of

EFFECT = Effect(0.041, -0.003, 0.082, 12, 6, 5, 0.05)
FOUND = SinceChange((("max_wal_size", "16GB"),), EFFECT, Verdict.UNDECIDED, after_s=60, next_s=120)
WHOLE = "since max_wal_size=16GB:  +4.1 % ( −0.3 …  +8.2) after  60 s: not yet clear, next at 120 s"


def stepped(seconds: int = 460, *, changed: bool = True, failed: int = 0) -> Session:
    """Ten per cent more from second 360 on; nobody can read when checkpoints write."""
    nothing = Unavailable(Reason.NOT_LOCAL)

    def change(second: int) -> dict[str, object]:
        tps = (1000.0 if second <= 360 else 1100.0) + 7.0 * (second * 37 % 11 - 5)
        event = Event(EPOCH_MS + second * 1000, EventKind.PARAMETER, "max_wal_size 1GB→16GB")
        sample = bench_sample(second, progress=(BenchProgress(float(second), tps, 8.3, 3.1, failed),))
        return {
            "bench": sample, "postgres": nothing, "host": nothing,
            "events": (event,) if changed and second == 360 else (),
        }  # fmt: skip

    return session_of(seconds, charted=CHARTED, change=change)


def drawn(session: Session, cells: int, rows: int) -> Line:
    line = throughput_lines(session, cells, rows, UNICODE)[0]
    assert width(line) == cells
    return line


def test_at_120_cells_the_title_tells_all_of_it() -> None:
    text = plain_text(drawn(stepped(), 120, 5))
    assert "TPS  since max_wal_size=16GB: +1" in text
    assert text.index(" % (") < text.index(" … ") < text.index("s: better")


def test_at_80_cells_there_is_a_short_form_in_a_chart_s_head_and_beside_a_spark() -> None:
    head = plain_text(drawn(stepped(), 80, 5))
    assert "since max_wal_size" in head
    assert "better" in head
    spark = plain_text(drawn(stepped(), 80, 1))
    assert "▲ +" in spark
    assert "better" in spark
    assert "client  11" in spark


def test_failed_transactions_stay_in_sight_beside_it() -> None:
    for cells in (80, 120, 200):
        text = plain_text(drawn(stepped(failed=12), cells, 5))
        assert "failed 12" in text
        assert "since max_wal_size" in text


def test_without_a_change_the_title_has_the_load() -> None:
    assert "since" not in plain_text(drawn(stepped(changed=False), 120, 5))
    assert "16 clients" in plain_text(drawn(stepped(changed=False), 120, 5))


def test_it_stays_beside_the_state_of_a_load_that_is_over() -> None:
    session = stepped()
    sample = bench_sample(460)
    over = replace(sample, run=replace(sample.run, state=RunState.FINISHED, exit_status=0), progress=(), latencies=())
    session.apply(Step((frame(460, bench=over, events=(Event(EPOCH_MS + 460_000, EventKind.LOAD, "load finished"),)),)))
    assert "TPS  finished, since max_wal_size=16GB: +1" in plain_text(drawn(session, 120, 5))


def test_the_longest_form_that_fits_is_taken() -> None:
    assert plain_text(since_title(FOUND, 120, UNICODE)) == WHOLE
    seen = [plain_text(since_title(FOUND, cells, UNICODE)) for cells in range(120, -1, -1)]
    assert list(dict.fromkeys(seen)) == [
        WHOLE,
        "since max_wal_size=16GB:  +4.1 % ( −0.3 …  +8.2) after  60 s: undecided",
        "since max_wal_size=16GB:  +4.1 % ( −0.3 …  +8.2) undecided",
        "since max_wal_size:  +4.1 % ( −0.3 …  +8.2) undecided",
        "since max_wal_size:  +4.1 % undecided",
        "▲  +4.1 % undecided",
        "",
    ]


@pytest.mark.parametrize("cells", [40, 53, 60, 93])
def test_the_form_is_the_same_whatever_the_verdict_and_the_figures(cells: int) -> None:
    def shape(verdict: Verdict, effect: Effect) -> Sequence[int]:
        spans = since_title(replace(FOUND, verdict=verdict, effect=effect), cells, UNICODE)
        return [width((span,)) for span in spans[:-1]]

    large = replace(EFFECT, relative=-0.241, low=-0.303, high=-0.182, blocks_b=48)
    assert len({tuple(shape(verdict, effect)) for verdict in Verdict for effect in (EFFECT, large)}) == 1


def test_before_the_first_look_there_is_no_figure_and_a_young_load_is_said() -> None:
    found = replace(FOUND, effect=None)
    assert plain_text(since_title(found, 120, UNICODE)) == "since max_wal_size=16GB: too early to tell"
    assert width(since_short(found, UNICODE)) == width(since_short(FOUND, UNICODE))
    young = plain_text(since_title(replace(found, too_early=True), 120, UNICODE))
    assert young == "since max_wal_size=16GB: the load was too young before the change"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"verdict": Verdict.BETTER}, "better, next at 120 s"),
        ({"withdrawn": True}, "no longer clear, next at 120 s"),
        ({"final": True, "next_s": None}, "undecided: an A/B experiment decides"),
        ({"unlike": "foreign CPU differs"}, "foreign CPU differs, next at 120 s"),
        ({"moved": -0.06}, "drifting −6.0 % in 10 min before, next at 120 s"),
    ],
)
def test_the_title_says_what_stands_against_a_verdict_and_when_it_is_looked_at_next(
    told: dict[str, Any], words: str
) -> None:
    assert plain_text(since_title(replace(FOUND, **told), 140, UNICODE)).endswith(words)


def test_a_set_names_its_first_and_plain_terminals_get_plain_characters() -> None:
    found = replace(FOUND, changed=(("a", "\x1b[31m1"), ("b", "2"), ("c", "3")))
    text = plain_text(since_title(found, 120, ASCII))
    assert " and 2 more: " in text
    assert text.replace("\N{SYMBOL FOR ESCAPE}", "").isascii()
    assert text.isprintable()
