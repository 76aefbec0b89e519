"""Values and steps: the same numbers and texts as the server's own."""

from __future__ import annotations

import random
from contextlib import suppress

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.advice.knobs.catalogue import BY_NAME, KNOBS
from pgtop_tune.advice.knobs.knob import Knob, next_value
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.parameter_values import parse, parse_bool, show
from pgtop_tune.model.postgres import Parameter
from tests.support.servers import conninfo

UNITS = ("B", "kB", "8kB", "16kB", "MB", "ms", "s", "min", "us", "")
_OCTAL = {"data_directory_mode", "log_file_mode", "unix_socket_permissions"}
_ASKS_THE_SOCKET = {"tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout"}
_ENDS_US = {"idle_session_timeout", "transaction_timeout", "statement_timeout"}


def parameter(name: str, setting: str, **fields: object) -> Parameter:
    base: dict[str, object] = {
        "unit": "", "vartype": "integer", "min_val": "", "max_val": "", "enumvals": (), "context": "sighup",
    }  # fmt: skip
    rest = dict.fromkeys(("category", "short_desc", "source", "boot_val", "reset_val", "sourcefile"), "")
    return Parameter(name=name, setting=setting, shown=setting, pending_restart=False, **{**base, **rest, **fields})  # type: ignore[arg-type]


@given(value=st.integers(1, 2**31 - 1), unit=st.sampled_from(UNITS))
def test_what_is_shown_is_read_as_the_same_number(value: int, unit: str) -> None:
    assert parse(show(value, unit, integer=True), unit, integer=True) == value


@given(value=st.floats(0.001, 1e6), unit=st.sampled_from(UNITS))
def test_what_is_shown_of_a_real_number_is_read_as_nearly_the_same(value: float, unit: str) -> None:
    # "nearly": SHOW prints six digits, and a fraction is rounded to the next smaller unit when read.
    assert parse(show(value, unit, integer=False), unit, integer=False) == pytest.approx(value, rel=1e-4, abs=0.002)


@given(text=st.text(max_size=12), unit=st.sampled_from(UNITS), integer=st.booleans())
def test_any_text_is_a_number_or_a_problem_told_in_words(text: str, unit: str, integer: bool) -> None:
    with suppress(UsageProblem):
        assert isinstance(parse(text, unit, integer=integer), float)


@pytest.mark.parametrize(
    ("text", "unit", "number", "shown"),
    [
        ("16GB", "MB", 16384, "16GB"),
        ("5min", "s", 300, "5min"),
        ("90s", "s", 90, "90s"),
        ("64MB", "8kB", 8192, "64MB"),
        ("100", "8kB", 100, "800kB"),
        ("-1", "kB", -1, "-1"),
        ("0", "ms", 0, "0"),
        ("0x10", "", 16, "16"),
        ("1.5GB", "MB", 1536, "1536MB"),
        (" 2 min ", "ms", 120_000, "2min"),
    ],
)
def test_whole_numbers(text: str, unit: str, number: float, shown: str) -> None:
    assert parse(text, unit, integer=True) == number
    assert show(number, unit, integer=True) == shown


@pytest.mark.parametrize("text", ["", "GB", "1 2", "16gb", "5min", "one", "1e999", "١٦"])
def test_what_the_server_would_not_take_for_megabytes(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse(text, "MB", integer=True)


@pytest.mark.parametrize(
    ("words", "result"),
    [(("on", "t", "TRUE", "y", "yes", "1", "On"), "on"), (("off", "of", "f", "no", "n", "0", "fal"), "off")],
)
def test_words_for_on_and_off(words: tuple[str, ...], result: str) -> None:
    assert {parse_bool(word) for word in words} == {result}


@pytest.mark.parametrize("word", ["o", "", "2", "truely", "none"])
def test_words_that_are_neither(word: str) -> None:
    with pytest.raises(UsageProblem):
        parse_bool(word)


@pytest.mark.ends_of_majors
def test_every_number_the_server_shows_is_shown_by_us_in_the_same_words(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers)) as connection:
        rows = connection.execute(
            "SELECT name, setting, coalesce(unit, ''), vartype = 'integer', current_setting(name)"
            " FROM pg_settings WHERE vartype IN ('integer', 'real')"
        ).fetchall()
    assert len(rows) > 100
    for name, setting, unit, integer, shown in rows:
        if name not in _OCTAL:
            assert show(parse(setting, unit, integer=integer), unit, integer=integer) == shown, name


@pytest.mark.ends_of_majors
def test_typed_values_come_out_as_the_server_reads_them(all_servers: Throwaway) -> None:
    dice = random.Random(20)
    families = {"B": ["B", "kB", "MB", "GB"], "m": ["us", "ms", "s", "min", "h"]}
    tried = 0
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        rows = connection.execute(
            "SELECT name, coalesce(unit, ''), vartype = 'integer', min_val::float8, max_val::float8 FROM pg_settings"
            " WHERE vartype IN ('integer', 'real') AND context IN ('user', 'superuser')"
        ).fetchall()
        for name, unit, integer, low, high in rows:
            if name in _ASKS_THE_SOCKET | _ENDS_US:
                continue
            for _ in range(8):
                number = dice.choice([dice.uniform(low, min(high, 1e7)), dice.randint(0, 10 ** dice.randint(1, 8))])
                typed = f"{number}{dice.choice(['', *families['B' if unit.endswith('B') else 'm']]) if unit else ''}"
                try:
                    connection.execute("SELECT set_config(%s, %s, false)", (name, typed))
                except psycopg.errors.InvalidParameterValue:
                    continue
                tried += 1
                shown = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
                assert shown == (show(parse(typed, unit, integer=integer), unit, integer=integer),), (name, typed)
            connection.execute(psycopg.sql.SQL("RESET {}").format(psycopg.sql.Identifier(*name.split("."))))
    assert tried > 200


def test_a_size_doubles_and_halves_within_its_range() -> None:
    knob = BY_NAME["max_wal_size"]
    now = parameter("max_wal_size", "1024", unit="MB", min_val="2", max_val="3000")
    assert next_value(now, knob, +1) == "2GB"
    assert next_value(now, knob, -1) == "512MB"
    assert next_value(parameter("x", "2048", unit="MB", min_val="2", max_val="3000"), knob, +1) == "3000MB"
    assert next_value(parameter("x", "3000", unit="MB", min_val="2", max_val="3000"), knob, +1) == "3000MB"
    assert next_value(parameter("x", "2", unit="MB", min_val="2", max_val="3000"), knob, -1) == "2MB"


def test_steps_are_taken_from_where_the_value_is() -> None:
    knob = BY_NAME["checkpoint_timeout"]
    now = parameter("checkpoint_timeout", "420", unit="s", min_val="30", max_val="86400")
    assert next_value(now, knob, +1) == "10min"
    assert next_value(now, knob, -1) == "5min"


def test_words_step_through_what_this_server_offers() -> None:
    knob = BY_NAME["wal_compression"]
    offered = {"vartype": "enum", "enumvals": ("pglz", "zstd", "on", "off")}
    assert next_value(parameter("wal_compression", "off", **offered), knob, +1) == "pglz"
    assert next_value(parameter("wal_compression", "pglz", **offered), knob, +1) == "zstd"
    assert next_value(parameter("wal_compression", "zstd", **offered), knob, +1) == "zstd"
    old = {"vartype": "bool"}
    assert next_value(parameter("wal_compression", "off", **old), knob, +1) == "on"
    assert next_value(parameter("wal_compression", "on", **old), knob, -1) == "off"


@given(st.sampled_from(KNOBS), st.lists(st.sampled_from([-1, 1]), max_size=30))
def test_steps_never_leave_the_range(knob: Knob, directions: list[int]) -> None:
    now = parameter(knob.name, "1", min_val="0.5", max_val="64", vartype="real")
    for direction in directions:
        if not all(step[0].isdigit() and step.isdigit() for step in knob.steps):
            return
        value = next_value(now, knob, direction)
        assert 0.5 <= float(value) <= 64
        now = parameter(knob.name, value, min_val="0.5", max_val="64", vartype="real")
