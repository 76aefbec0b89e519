"""Columns the operator chose are there again next time, whatever happened to the file in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.base.paths import state_dir
from pgtop_tune.tui.pages.page import PageColumn, PageTable
from pgtop_tune.tui.pages.screen import ColumnChoice


def table(name: str, *hidden: str, columns: tuple[str, ...] = ("key", "a", "b")) -> PageTable:
    made = tuple(PageColumn(each, each, 5, str, "", "", visible=each not in hidden) for each in columns)
    return PageTable(name, name, made, rows=lambda session: (), key_of=lambda row: row)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return state_dir() / "columns.json"


def test_a_choice_is_remembered_for_its_table() -> None:
    assert ColumnChoice().choose(table("t", "b"), frozenset({"key", "b"})) == ""
    again = ColumnChoice()
    assert again.of(table("t", "b")) == {"key", "b"}
    assert again.of(table("other", "b")) == {"key", "a"}


def test_two_sessions_at_once_do_not_forget_each_others_tables() -> None:
    one, two = ColumnChoice(), ColumnChoice()
    one.choose(table("t"), frozenset({"key"}))
    two.choose(table("u"), frozenset({"key", "a"}))
    last = ColumnChoice()
    assert last.of(table("t")) == {"key"}
    assert last.of(table("u")) == {"key", "a"}


def test_a_column_invented_later_appears_and_one_that_is_gone_does_no_harm() -> None:
    ColumnChoice().choose(table("t"), frozenset({"key", "a"}))
    assert ColumnChoice().of(table("t", columns=("key", "a", "c"))) == {"key", "a", "c"}


def test_the_key_column_cannot_be_lost(home: Path) -> None:
    ColumnChoice().choose(table("t"), frozenset())
    assert ColumnChoice().of(table("t")) == {"key"}


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"{", b"\xff\x00", b"[1, 2]", b'{"tables": 5}', b'{"tables": {"t": [1]}}',
        b'{"tables": {"t": {"a": "yes", "b": 1}}}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_file_counts_as_empty_and_is_mended_by_the_next_choice(home: Path, damage: bytes) -> None:
    home.parent.mkdir(parents=True)
    home.write_bytes(damage)
    choice = ColumnChoice()
    assert choice.of(table("t", "b")) == {"key", "a"}
    assert choice.choose(table("t", "b"), frozenset({"key", "b"})) == ""
    assert ColumnChoice().of(table("t", "b")) == {"key", "b"}


def test_what_cannot_be_written_is_said_and_holds_for_the_session(home: Path) -> None:
    home.parent.parent.mkdir(parents=True, exist_ok=True)
    home.parent.write_text("a file where the directory would be")
    choice = ColumnChoice()
    assert "not saved" in choice.choose(table("t"), frozenset({"key"}))
    assert choice.of(table("t")) == {"key"}


def test_nothing_is_left_beside_the_file(home: Path) -> None:
    ColumnChoice().choose(table("t"), frozenset({"key"}))
    ColumnChoice().choose(table("t"), frozenset({"key", "a"}))
    assert os.listdir(home.parent) == [home.name]
