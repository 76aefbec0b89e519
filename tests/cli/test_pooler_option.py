"""--pooler NAME=URI: what is taken, what is refused, and that no password is ever repeated."""

from __future__ import annotations

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.connections import pooler_addresses


def test_a_console_without_a_database_is_pgbouncers_whatever_the_server_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGDATABASE", "bench")
    for uri in ("postgresql://stats@127.0.0.1:6432", "postgres://stats@127.0.0.1:6432/", "host=h user=stats"):
        (address,) = pooler_addresses([f"bouncer={uri}"])
        assert address.keywords["dbname"] == "pgbouncer"
        assert address.described.endswith("/pgbouncer")


def test_a_database_that_is_named_is_taken() -> None:
    named = ["a=postgresql://u@h:1/pgcat", "b=host=h port=1 user=u dbname=pgcat", "c=postgresql://u@h:1?dbname=pgcat"]
    assert [address.keywords["dbname"] for address in pooler_addresses(named)] == ["pgcat"] * 3


def test_a_password_is_kept_out_of_words_and_keywords() -> None:
    (address,) = pooler_addresses(["bouncer=postgresql://stats:s3cret@127.0.0.1:6432/pgbouncer"])
    assert address.secrets["password"].reveal() == "s3cret"
    assert "s3cret" not in repr(address)
    assert address.described == "stats@127.0.0.1:6432/pgbouncer"


@pytest.mark.parametrize(
    "words",
    ["postgresql://u:s3cret@h/pgbouncer", "=postgresql://u:s3cret@h", "bouncer=", " b=host=h", "b;c=host=h", ""],
)
def test_words_without_a_name_or_a_place_are_refused_and_not_repeated(words: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        pooler_addresses([words])
    assert "s3cret" not in str(refused.value)
    assert "--pooler" in refused.value.hint


def test_a_pooler_may_be_called_like_its_endpoint() -> None:
    (address,) = pooler_addresses(["HAProxy + PgBouncer=host=h port=8432"])
    assert (address.name, address.host, address.port) == ("HAProxy + PgBouncer", "h", 8432)


def test_two_poolers_of_one_name_are_refused() -> None:
    with pytest.raises(UsageProblem, match="two poolers are called a"):
        pooler_addresses(["a=host=h", "b=host=h", "a=host=i"])


def test_none_is_none() -> None:
    assert pooler_addresses(None) == ()
