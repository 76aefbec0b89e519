"""A plan as a file: what it says, and what is wrong with it."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.experiment.plan.plan_file import (
    KEYS,
    line_numbers,
    parse_plan,
    plan_path,
    read_plan,
    shipped_plans,
)


def refused(text: str) -> str:
    with pytest.raises(UsageProblem) as problem:
        parse_plan(text, "mine.toml")
    return str(problem.value)


def test_every_shipped_plan_is_read() -> None:
    assert shipped_plans() == ("P1", "P4", "P5", "outage")
    for name in shipped_plans():
        assert read_plan(plan_path(name.lower())).name == name


def test_a_slip_of_the_pen_is_told_with_its_line_and_the_nearest_key() -> None:
    words = refused('name = "x"\n\nrepaets = 3\n')
    assert "mine.toml, line 3: unknown key 'repaets'" in words
    assert "did you mean repeats?" in words


@pytest.mark.parametrize(
    ("text", "line", "near"),
    [
        ('[[configuration]]\nname = "a"\n[[configuration]]\nname = "b"\nparamters = {}\n', 6, "parameters"),
        ('[limits]\ntmie = "1h"\n', 3, "time"),
        ("[constraints]\np99_ms_mx = 4\n", 3, "p99_ms_max"),
        ('[[endpoint]]\nname = "a"\nadress = ":1"\n', 4, "address"),
    ],
)
def test_the_same_within_a_table(text: str, line: int, near: str) -> None:
    words = refused(f'name = "x"\n{text}')
    assert f"line {line}: unknown key" in words
    assert f"did you mean {near}?" in words


def test_several_constraints() -> None:
    plan = parse_plan('name = "x"\n[constraints]\np99_ms_max = 20\ntps_min = 100\n')
    assert [(each.figure, each.limit) for each in plan.constraints] == [("p99_ms", 20.0), ("tps", 100.0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('time = "ten"', "line 2: time takes a length of time"),
        ('time = "0s"', "line 2: time takes a length of time from 1s"),
        ("repeats = 0", "line 2: repeats takes a whole number"),
        ('objective = "speed"', "line 2: objective takes one of tps, latency_ms"),
        ('page_sizes = ["3MB"]', "line 2: page_sizes takes a list of 4kB"),
        ('baseline = "b"', "line 2: baseline names none of as it is"),
        ("clients = [1, 1]", "line 2: clients takes a list of different"),
        ('init_steps = "dtx"', "line 2: init_steps takes letters"),
        (
            '[[configuration]]\nname = "a"\n[[configuration]]\nname = "a"',
            "line 5: configuration.name 'a' appears twice",
        ),
        ('[limits]\ndisk = "much"', "line 3: limits.disk takes a size"),
        ("[limits]\ndisk = -5", "line 3: limits.disk takes a size"),
        ("[limits]\ntime = nan", "line 3: limits.time takes a length of time of at least 1s"),
        ("[limits]\ntime = inf", "line 3: limits.time takes a length of time of at least 1s"),
        ('[limits]\ntime = "0s"', "line 3: limits.time takes a length of time of at least 1s"),
        (
            '[[configuration]]\nname = "a"\n[configuration.parameters]\njit = true\nJIT = false',
            "line 6: configuration.parameters.JIT appears twice",
        ),
        ("clients = [0]", "line 2: clients takes a list of different numbers, such as 16"),
        ('clients = ["4 per cpu"]', "line 2: clients takes"),
        ('scales = ["50% of RMA"]', "line 2: scales takes a list of different scales, such as 1000"),
        ("[constraints]\np99_ms_max = nan", "line 3: constraints.p99_ms_max takes a number"),
        ("[constraints]\ntps_min = inf", "line 3: constraints.tps_min takes a number"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_line(text: str, words: str) -> None:
    assert words in refused(f'name = "x"\n{text}\n')


def test_what_is_no_toml_is_told_with_its_line() -> None:
    assert "line 2" in refused('name = "x"\ntime = \n')


def test_brackets_without_an_end_and_numbers_without_one_are_no_toml() -> None:
    assert "nested too deep" in refused("a = " + "[" * 20_000)
    assert "4300" in refused("a = " + "1" * 5_000)


def test_a_plan_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'\xef\xbb\xbfname = "x"\n')
    assert read_plan(path).name == "x"


def test_a_plan_needs_a_name() -> None:
    assert "has no name" in refused("repeats = 2")


def test_values_with_units_and_relative_ones_are_kept_as_typed() -> None:
    plan = parse_plan(
        'name = "x"\ntime = "1m30s"\n[limits]\ntime = "2h"\ndisk = "5GB"\n[[configuration]]\nname = "a"\n'
        '[configuration.parameters]\nshared_buffers = "25% of RAM"\nfsync = false\nwork_mem = 64\n'
        '[configuration.settings]\n"vm.swappiness" = 5\n'
    )
    assert (plan.time_s, plan.limits.time_s, plan.limits.disk_bytes) == (90.0, 7200.0, 5 * 2**30)
    [configuration] = plan.configurations
    assert dict(configuration.parameters) == {"shared_buffers": "25% of RAM", "fsync": "off", "work_mem": "64"}
    assert configuration.settings == (("vm.swappiness", "5"),)


def test_a_plan_that_there_is_not_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageProblem, match="there is no plan P9") as problem:
        plan_path("P9")
    assert "P1, P4, P5" in problem.value.hint


_NAMES = st.sampled_from([*KEYS, "unknown", "a b", "x.y", "configuration", "limits", "endpoint", "constraints"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 65536 else f"\\U{ord(c):08x}" for c in value)
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(name)} = {_toml(each)}' for name, each in value.items())}}}"
    return "1" if value is None else repr(value)


@given(st.dictionaries(_NAMES, _VALUES, max_size=6))
def test_no_text_of_toml_ends_in_anything_but_a_plan_or_a_sentence(table: dict[str, object]) -> None:
    text = "\n".join(f"{_toml(name)} = {_toml(value)}" for name, value in table.items())
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    with suppress(UsageProblem):
        parse_plan(text)


@given(st.text(max_size=200))
def test_no_text_at_all_does_either(text: str) -> None:
    with suppress(UsageProblem):
        parse_plan(text)


@given(st.lists(st.sampled_from(["a", "b-c", '"d e"', "f"]), unique=True, max_size=4), st.integers(0, 3))
def test_the_line_of_a_key_is_the_one_it_stands_in(names: list[str], gap: int) -> None:
    lines = ["# begin", *[f"{name} = 1\n{chr(10) * gap}" for name in names], "[[t]]", "k = 1", "[t.s]", "k = 2"]
    text = "\n".join(lines)
    found = line_numbers(text)
    written = text.splitlines()
    for name in names:
        assert written[found[(name.strip('"'),)] - 1].startswith(f"{name} =")
    assert written[found["t", "0", "k"] - 1] == "k = 1"
    assert written[found["t", "0", "s", "k"] - 1] == "k = 2"
