"""What may be explained: one complete plain query, whatever stands in its strings and comments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.postgres.statements.explain import plain_query

PLAIN = [
    ("SELECT 1", "SELECT 1"),
    ("  select ';' ;  -- the end;\n", "select ';'"),
    ("/* a /* nested; */ comment */ UPDATE t SET a = E'it\\'s; ' WHERE b = 'x''; y'", None),
    ("WITH gone AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM gone", None),
    ("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DO NOTHING", None),
    ("SELECT $body$ ; drop table t; $body$, $$;$$", None),
    ('SELECT ";" FROM "a""b;"', None),
    ("SELECT U&'\\0041;', B'01', X'AF', n';'", None),
    ("VALUES (1, 'a;b')", None),
    ("TABLE pgbench_branches", None),
    ("SELECT a[1:2], (SELECT 2) FROM t WHERE b ~ '[;]'", None),
    ("SELECT 1 -- ; second\n", "SELECT 1 -- ; second"),
    ("SELECT név FROM tábla;", "SELECT név FROM tábla"),
    ("(SELECT 1) UNION (SELECT 2 FROM t)", None),
    ("((SELECT a FROM t ORDER BY a LIMIT 1) UNION ALL VALUES (2)) ORDER BY 1", None),
]
REFUSED = [
    ("", "no plain query"),
    ("-- only a comment", "no plain query"),
    ("SELECT 1; DROP TABLE t", "more than one"),
    ("SELECT 1;; ", "more than one"),
    ("SELECT 1; /* x */ SELECT 2", "more than one"),
    ("COMMIT", "begins with COMMIT"),
    ("EXPLAIN ANALYZE SELECT 1", "begins with EXPLAIN"),
    ("EXECUTE p(1)", "begins with EXECUTE"),
    ("COPY t FROM STDIN", "begins with COPY"),
    ("(DROP TABLE t)", "begins with DROP"),
    ("(ANALYZE) SELECT 1", "begins with ANALYZE"),
    ("(SELECT 1 INTO t)", "SELECT INTO"),
    ("((SELECT 1) UNION SELECT 2 INTO t FROM u)", "SELECT INTO"),
    ("(SELECT 1) UNION (SELECT 2); SELECT 3", "more than one"),
    ("((1", "begins with something else"),
    ("CREATE TABLE t AS SELECT 1", "begins with CREATE"),
    ("SELECT 1 INTO t", "SELECT INTO"),
    ("SELECT 'not finished", "inside a string"),
    ("SELECT E'not finished \\'", "inside a string"),
    ('SELECT "not finished', "inside a string or a name"),
    ("SELECT $x$ not finished $y$", "inside a string"),
    ("SELECT /* /* */ 1", "inside a comment"),
    ("SELECT (1", "parenthesis is not closed"),
    ("SELECT (1; )", "parenthesis is not closed"),
    ("SELECT 1)", "has no opening"),
    ("<insufficient privilege>", "begins with something else"),
    ("autovacuum: VACUUM t", "begins with AUTOVACUUM"),
]


@pytest.mark.parametrize(("text", "query"), PLAIN)
def test_plain_queries_pass(text: str, query: str | None) -> None:
    found = plain_query(text)
    assert found.text == (text if query is None else query)
    assert not found.placeholders


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_everything_else_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(UsageProblem, match=why):
        plain_query(text)


def test_placeholders_are_seen_outside_of_strings_only() -> None:
    assert plain_query("SELECT * FROM t WHERE a = $1").placeholders
    assert not plain_query("SELECT '$1', $$ $2 $$, \"$3\"").placeholders


@given(st.text(alphabet="sSeElLcCtT 1;'\"$\\/*-()Eex\n", max_size=60))
def test_no_text_breaks_it_and_what_passes_holds_no_second_statement(text: str) -> None:
    try:
        query = plain_query("SELECT " + text)
    except UsageProblem:
        return
    assert plain_query(query.text) == query
    with pytest.raises(UsageProblem):
        plain_query(f"{query.text}\n; SELECT 2")
