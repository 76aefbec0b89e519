"""Moments as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from time import tzset

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import seconds
from pgtop_tune.runtime.window import Timeline, parse_moment

EAST = timezone(timedelta(hours=2))
STARTED = datetime(2026, 3, 1, 12, 30, 20, tzinfo=EAST)
TWENTY_MINUTES = Timeline(shown_s=300.0, length_s=1200.0, started_ms=STARTED.timestamp() * 1000, zone=EAST)


@pytest.mark.parametrize(
    ("words", "elapsed_s"),
    [
        ("3m ago", 1020.0),
        ("1m30s ago", 1110.0),
        ("1h ago", 0.0),
        ("-30s", 270.0),
        ("−30s", 270.0),
        ("-30", 270.0),
        ("+1m", 360.0),
        ("+ 1m", 360.0),
        ("+1h", 1200.0),
        ("-1h", 0.0),
        ("00:05:00", 300.0),
        ("0:00:07", 7.0),
        ("12:40", 580.0),
        ("12:30", 0.0),
        ("12:50", 1180.0),
        ("12:40:07", 587.0),
        ("at 12:40:07", 587.0),
        ("at 12:40", 580.0),
        ("90s", 90.0),
        ("5m", 300.0),
        ("1.5m", 90.0),
        ("90", 90.0),
        ("start", 0.0),
        ("end", 1200.0),
        ("  3M  AGO ", 1020.0),
    ],
)
def test_understood(words: str, elapsed_s: float) -> None:
    assert parse_moment(words, TWENTY_MINUTES) == pytest.approx(elapsed_s)


@pytest.mark.parametrize(
    "words", ["", "yesterday", "3 parsecs", "12:61", "25:00", "12", "1:2:3:4", "ago", "+", "-", "at noon", "٣m ago"]
)
def test_refused_with_examples(words: str) -> None:
    if words == "12":
        assert parse_moment(words, TWENTY_MINUTES) == 12.0
        return
    with pytest.raises(UsageProblem) as refused:
        parse_moment(words, TWENTY_MINUTES)
    assert refused.value.hint


def test_a_time_without_a_session_names_the_times_of_the_session() -> None:
    with pytest.raises(UsageProblem, match="12:30:20 to 12:50:20"):
        parse_moment("13:15", TWENTY_MINUTES)


def test_a_long_position_is_a_time_of_day_where_the_session_is_too_short_for_it() -> None:
    long = Timeline(0.0, 14 * 3600.0, STARTED.timestamp() * 1000, EAST)
    assert parse_moment("12:40:07", TWENTY_MINUTES) == pytest.approx(587.0)
    assert parse_moment("12:40:07", long) == pytest.approx(12 * 3600 + 40 * 60 + 7)
    assert parse_moment("at 12:40:07", long) == pytest.approx(587.0)


def test_a_script_gets_no_moment_beyond_the_recording_and_none_of_two() -> None:
    long = Timeline(0.0, 14 * 3600.0, STARTED.timestamp() * 1000, EAST)
    with pytest.raises(UsageProblem, match="a time of day and a time from the start") as refused:
        parse_moment("12:40:07", long, within=True)
    assert refused.value.hint == "type at 12:40:07, or 12h40m7s"
    assert parse_moment("12:40:07", TWENTY_MINUTES, within=True) == pytest.approx(587.0)
    assert parse_moment("2026-03-01 12:30", TWENTY_MINUTES, within=True) == 0.0
    assert parse_moment("2026-03-01T10:40:07.5Z", TWENTY_MINUTES, within=True) == pytest.approx(587.5)
    for words in ("2026-02-28 12:40", "2026-03-01 12:51", "0001-01-01 00:00", "9999-12-31 23:59-23:59"):
        with pytest.raises(UsageProblem):
            parse_moment(words, TWENTY_MINUTES, within=True)


def test_the_second_of_two_equal_hours_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    began = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        tzset()
        for words in ("02:20", "2026-10-25 02:20"):
            line = Timeline(0.0, 1200.0, began.timestamp() * 1000)
            assert parse_moment(words, line, within=True) == pytest.approx(600.0)
    tzset()


def test_over_several_days_the_time_nearest_to_the_moment_shown_is_meant() -> None:
    day = 86_400.0
    line = Timeline(2 * day, 3 * day, STARTED.timestamp() * 1000, EAST)
    assert parse_moment("12:40", line) == pytest.approx(2 * day + 580.0)


def test_the_local_zone_is_used_without_another() -> None:
    local = datetime.fromtimestamp(STARTED.timestamp(), tz=UTC).astimezone() + timedelta(minutes=5)
    line = Timeline(0.0, 1200.0, STARTED.timestamp() * 1000)
    assert parse_moment(f"at {local:%H:%M:%S}", line) == pytest.approx(300.0)


@given(st.text(max_size=20))
def test_anything_typed_is_a_moment_of_the_session_or_a_usage_problem(words: str) -> None:
    try:
        found = parse_moment(words, TWENTY_MINUTES)
    except UsageProblem:
        return
    assert 0.0 <= found <= TWENTY_MINUTES.length_s


@given(st.integers(0, 9), st.integers(0, 59), st.integers(0, 59))
def test_lengths_add_up(hours: int, minutes: int, whole_seconds: int) -> None:
    assert seconds(f"{hours}h{minutes}m{whole_seconds}s") == hours * 3600 + minutes * 60 + whole_seconds
