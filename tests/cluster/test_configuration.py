"""Settings become lines that the server reads back as they were given."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster.throwaway import Throwaway, configuration_lines
from tests.support.servers import conninfo

HOSTILE = "it's \\n \"quoted\" # not a comment \\' = x"


def test_the_server_reads_values_as_they_were_given(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(**{"my.words": HOSTILE, "work_mem": "5MB"})
    with psycopg.connect(conninfo(server)) as connection:
        assert connection.execute("SHOW my.words").fetchone() == (HOSTILE,)
        assert connection.execute("SHOW work_mem").fetchone() == ("5MB",)


@given(st.text())
def test_a_value_stays_on_its_line_and_between_its_quotes(value: str) -> None:
    try:
        text = configuration_lines({"work_mem": value})
    except ClusterProblem:
        assert any(character in value for character in "\n\r\0")
        return
    assert text.startswith("work_mem = '")
    assert text.endswith("'\n")
    body = text.removeprefix("work_mem = '").removesuffix("'\n")
    assert "'" not in body.replace("''", "")
    assert body.replace("''", "'").replace("\\\\", "\\") == value
    assert not any(character in body for character in "\n\r\0")


@pytest.mark.parametrize("name", ["", "a b", "x\ny", "a=b", "'", "1st", "work_mem\n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ClusterProblem, match="is not a parameter name"):
        configuration_lines({name: "1"})
