"""Statements that change a parameter, and lists as the server writes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.changes.model.change import Scope, ScopeKind
from pgtop_tune.changes.statements import elements, is_same_value, out_of_order, statement

NAMES = st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8), max_size=5)


@given(NAMES)
def test_a_list_with_every_element_quoted_is_read_as_it_was_written(names: list[str]) -> None:
    written = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    assert elements("search_path", written) == tuple(names)
    assert is_same_value("search_path", written, written.replace('", "', '","'))


@given(st.text(max_size=30))
def test_any_text_is_a_list_or_none(text: str) -> None:
    for name in ("search_path", "shared_preload_libraries"):
        pieces = elements(name, text)
        assert pieces is None or all(isinstance(element, str) for element in pieces)
        assert is_same_value(name, text, text)


def test_an_empty_list_and_an_element_without_a_name_compare_as_the_server_reads_them() -> None:
    assert is_same_value("search_path", "", '""')
    assert not is_same_value("shared_preload_libraries", "", '""')
    assert not is_same_value("search_path", "", None)
    assert elements("shared_preload_libraries", "a b, C") == ("a b", "C")
    assert elements("search_path", "a, C") == ("a", "c")
    for broken in ("a,", ",", "a,,b", '"a', '"a"b'):
        assert elements("shared_preload_libraries", broken) is None


@given(st.permutations("abcdef"), st.permutations("abcdef"))
def test_writing_the_lines_out_of_order_anew_brings_them_into_order(have: list[str], wanted: list[str]) -> None:
    lines = list(have)
    for name in out_of_order(have, wanted):
        lines.remove(name)
        lines.append(name)
    assert lines == wanted


def test_a_statement_names_its_scope_and_quotes_everything() -> None:
    def text(name: str, value: str | None, **scope: str) -> str:
        kind = ScopeKind(scope.pop("kind", "system"))
        return statement(name, value, Scope(kind, **scope))

    assert text("work_mem", "8MB", kind="role", role='a"b') == 'ALTER ROLE "a""b" SET "work_mem" = \'8MB\''
    assert text("a.b", None, kind="database", database="x; y") == 'ALTER DATABASE "x; y" RESET "a"."b"'
    assert text("jit", "it's", kind="role in database", role="r", database="d") == (
        'ALTER ROLE "r" IN DATABASE "d" SET "jit" = \'it\'\'s\''
    )
    assert text("search_path", '"A b", c') == "ALTER SYSTEM SET \"search_path\" = 'A b', 'c'"
    assert text("search_path", "") == "ALTER SYSTEM SET \"search_path\" = ''"
    assert text("shared_preload_libraries", "") == 'ALTER SYSTEM RESET "shared_preload_libraries"'
