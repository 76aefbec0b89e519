"""Limits as other sessions have them, read by one that has none."""

from __future__ import annotations

import pytest

from pgtop_tune.postgres.time_limits import as_set, of_major, options
from tests.support.frames import parameter


@pytest.mark.parametrize(
    ("reset_val", "shown"),
    [("0", "0"), ("1", "1ms"), ("1500", "1500ms"), ("60000", "1min"), ("7200000", "2h"), ("86400000", "1d")],
)
def test_a_limit_is_shown_as_the_server_shows_it(reset_val: str, shown: str) -> None:
    row = parameter("statement_timeout", "0", "0", "ms")
    row = type(row)(**{name: getattr(row, name) for name in row.__slots__} | {"reset_val": reset_val})
    assert as_set(row, None, from_start=False).shown == shown


@pytest.mark.parametrize(
    ("text", "shown"), [("1ms", "1ms"), ("90s", "90s"), ("0.5min", "30s"), ("1000", "1s"), ("odd", "0")]
)
def test_lifted_from_the_start_the_file_says_what_is_set(text: str, shown: str) -> None:
    found = as_set(parameter("lock_timeout", "0", "0", "ms"), (text, "/a/b.conf:3"), from_start=True)
    assert (found.shown, found.source, found.sourcefile) == (shown, "configuration file", "/a/b.conf:3")


def test_only_limits_that_a_major_has_are_lifted() -> None:
    assert "transaction_timeout" not in options(of_major(16))
    assert "-c transaction_timeout=0" in options(of_major(17))
