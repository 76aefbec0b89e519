"""Words of `set`: what they mean, and what is wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import SYSTEM, Scope, ScopeKind, WantedParameter
from pgtop_tune.cli.assignments import checked_name, instead, scope_of, wanted_parameters
from pgtop_tune.model.parameter_values import check_value, without_blanks
from pgtop_tune.model.postgres import Parameter

NAMES = ["max_wal_size", "min_wal_size", "work_mem", "pg_stat_statements.max"]


def parameter(vartype: str = "integer", unit: str = "MB", low: str = "2", high: str = "1000") -> Parameter:
    return Parameter(
        "max_wal_size", "100", "100MB", unit, "", "", "sighup", vartype, "default", low, high, (), "", "", "", False
    )


@given(st.text())
def test_all_behind_the_first_equals_sign_is_the_value(value: str) -> None:
    assert wanted_parameters([f"a.b={value}"], SYSTEM) == (WantedParameter("a.b", value, SYSTEM),)


def test_blanks_count_in_a_text_alone() -> None:
    """log_line_prefix nearly always ends in one."""
    assert wanted_parameters(["log_line_prefix = %m [%p] "], SYSTEM)[0].value == "%m [%p] "
    assert without_blanks(parameter("string"), " %m [%p] ") == " %m [%p] "
    assert without_blanks(parameter("enum"), " on ") == without_blanks(parameter("bool"), "on\n") == "on"


@pytest.mark.parametrize("word", ["max_wal_size", "", "=4", "a b=1", "a;drop=1", 'a"=1', "1a=2", "a.=1", "ä=1"])
def test_what_is_no_assignment_is_refused(word: str) -> None:
    with pytest.raises(UsageProblem):
        wanted_parameters([word], SYSTEM)


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("system", SYSTEM),
        ("load", None),
        ("role=a b", Scope(ScopeKind.ROLE, "a b")),
        ("database=shop", Scope(ScopeKind.DATABASE, "", "shop")),
        ("database=shop,role=ann", Scope(ScopeKind.ROLE_IN_DATABASE, "ann", "shop")),
        (" role = a=b , database = x ", Scope(ScopeKind.ROLE_IN_DATABASE, "a=b", "x")),
        ('role="a,b=""c"" ",database=x', Scope(ScopeKind.ROLE_IN_DATABASE, 'a,b="c" ', "x")),
    ],
)
def test_scopes(text: str, scope: Scope | None) -> None:
    assert scope_of(text) == scope


@pytest.mark.parametrize(
    "text", ["", "galaxy", "role", "role=", "role=a,role=b", "role=a,system", "table=a", 'role="a', "role=a,"]
)
def test_what_is_no_scope_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="is not a scope"):
        scope_of(text)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_wal_sise", "max_wal_size"),
        ("Work_Men", "work_mem"),
        ("pg_stat_statement.max", "pg_stat_statements.max"),
        ("plugin.x", "their library"),
        ("zzzz", "pgtop-tune parameters"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, hint: str) -> None:
    assert hint in instead(checked_name(name), NAMES)


@pytest.mark.parametrize("value", ["2", "1000", "4MB", "0.5GB", " 64 MB", "1e2"])
def test_values_the_server_takes_pass(value: str) -> None:
    check_value(parameter(), value)


@pytest.mark.parametrize("value", ["", "1", "1001", "1GB ; x", "4min", "4 furlongs", "16gb", "NaN", "-1"])
def test_wrong_units_and_ranges_are_refused_with_the_name(value: str) -> None:
    with pytest.raises(UsageProblem, match=r"^max_wal_size: ") as refused:
        check_value(parameter(), value)
    assert refused.value.hint


def test_words_that_are_neither_on_nor_off_are_refused() -> None:
    check_value(parameter("bool", "", "", ""), "TRUE")
    with pytest.raises(UsageProblem):
        check_value(parameter("bool", "", "", ""), "maybe")
    check_value(parameter("string", "", "", ""), "anything")
