"""What an operator types for steps, endpoints and housekeeping, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.bench.housekeeping import STEPS, parse_housekeeping
from pgtop_tune.experiment.path import EndpointWords, parse_endpoint
from pgtop_tune.experiment.series import Steps, parse_steps
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.postgres.server.other_address import OtherAddress


def test_steps_of_clients_change_the_clients_and_nothing_else() -> None:
    steps = parse_steps("clients=1,2,4, 64")
    assert steps == Steps("clients", (1.0, 2.0, 4.0, 64.0))
    specs = steps.specs(LoadSpec(clients=9, rate_per_s=7.0))
    assert [(spec.clients, spec.rate_per_s) for spec in specs] == [(1, 7.0), (2, 7.0), (4, 7.0), (64, 7.0)]


def test_steps_of_rates_change_the_rate() -> None:
    assert [spec.rate_per_s for spec in parse_steps("rate=0.5,100").specs(LoadSpec())] == [0.5, 100.0]


@pytest.mark.parametrize(
    "text", ["", "clients", "clients=", "threads=1,2", "clients=1,x", "clients=0", "clients=1.5", "rate=-1", "rate=nan",
             "rate=inf", "clients=1e99"],
)  # fmt: skip
def test_what_is_no_list_of_steps_is_refused_with_the_form_to_write(text: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        parse_steps(text)
    assert problem.value.hint


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("pooler=:6432", OtherAddress(port="6432")),
        ("a=db1:5432/bench", OtherAddress("", "db1", "5432", "bench")),
        ("a=db1", OtherAddress("", "db1")),
        ("a=/run/postgresql:5432/bench", OtherAddress("", "/run/postgresql", "5432", "bench")),
        ("a=[::1]:6432/b", OtherAddress("", "::1", "6432", "b")),
        ("Ha Proxy = 10.0.0.1:8432", OtherAddress("", "10.0.0.1", "8432")),
        ("a=postgresql://u@h:1/d?sslmode=require", OtherAddress("postgresql://u@h:1/d?sslmode=require")),
    ],
)
def test_an_endpoint_has_a_name_and_a_place(text: str, address: OtherAddress) -> None:
    assert parse_endpoint(text) == EndpointWords(text.partition("=")[0].strip(), address)


@pytest.mark.parametrize("text", ["", "db1:5432", "=db1", "a=", "a=h:99999", "a=h:x", "a=u@h"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse_endpoint(text)


@pytest.mark.parametrize("text", ["a=host=db1 port=6432", "host=db1 port=6432", "a=port = 6432", "a=db1 dbname=shop"])
def test_keywords_are_no_host_and_the_right_form_is_named(text: str) -> None:
    with pytest.raises(UsageProblem, match="no keywords") as refused:
        parse_endpoint(text)
    assert "NAME=HOST:PORT/DATABASE" in refused.value.hint


def test_housekeeping_is_done_in_its_own_order_whatever_was_typed_first() -> None:
    assert parse_housekeeping("quiet, vacuum") == ("vacuum", "quiet")
    assert parse_housekeeping("none") == ()
    with pytest.raises(UsageProblem, match="'dust' is not a housekeeping step"):
        parse_housekeeping("vacuum,dust")


@given(st.text(max_size=60))
def test_any_words_are_understood_or_refused_and_nothing_else(text: str) -> None:
    for parse in (parse_steps, parse_endpoint, parse_housekeeping):
        try:
            found = parse(text)
        except UsageProblem:
            continue
        assert found is not None
        assert parse is not parse_housekeeping or set(found) <= set(STEPS)  # type: ignore[call-overload]
