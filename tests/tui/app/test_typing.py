"""The line editor, wrapping, and the form of the load: pure pieces of the dialogs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import printable_lines
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.tui.load.dialog import LoadForm
from pgtop_tune.tui.widgets.lines import UNICODE, hanging, labelled, plain_text, width, wrap
from pgtop_tune.tui.widgets.text_field import LIMIT, TextField
from tests.support.screens import PROFILES

KEYS = st.sampled_from(
    ["backspace", "delete", "left", "right", "home", "end", "ctrl+w", "ctrl+u", "ctrl+k", "a", "Ü", "漢", " "]
)


def _typed(field: TextField, *keys: str) -> TextField:
    for key in keys:
        field.press(key, key if len(key) == 1 else None)
    return field


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        (["a", "b", "left", "c"], "acb", 2),
        (["a", "b", "home", "delete"], "b", 0),
        (["a", " ", "b", "ctrl+w"], "a ", 2),
        (["a", "b", "left", "ctrl+k"], "a", 1),
        (["a", "b", "left", "ctrl+u"], "b", 0),
        (["left", "backspace", "delete"], "", 0),
    ],
)
def test_keys_edit_as_in_a_shell(keys: list[str], text: str, cursor: int) -> None:
    field = _typed(TextField(), *keys)
    assert (field.text, field.cursor) == (text, cursor)


@pytest.mark.parametrize(
    ("keys", "text"),
    [(["2"], "2"), (["backspace"], ""), (["ctrl+u", "2"], "2"), (["end", "2"], "162"), (["2", "4"], "24")],
)
def test_the_first_key_replaces_a_selected_text(keys: list[str], text: str) -> None:
    field = TextField("16")
    field.select()
    assert _typed(field, *keys).text == text


def test_keys_that_mean_nothing_here_are_left_to_others() -> None:
    assert not TextField().press("escape", "\x1b")
    assert not TextField().press("f5", None)


def test_a_paste_of_several_lines_becomes_one_and_is_bounded() -> None:
    field = TextField()
    field.insert("16GB\n-- \x1b[31m drop\n")
    assert field.text == "16GB -- ␛[31m drop"
    field.insert("x" * 5_000)
    assert len(field.text) == LIMIT


def test_a_masked_field_shows_asterisks_and_keeps_every_character() -> None:
    field = TextField(masked=True)
    field.insert(" s3cr[et ]\n")
    assert field.text == " s3cr[et ]"
    assert "s3cr" not in plain_text(field.line(30)) + repr(field)
    assert plain_text(field.line(30)).strip() == "*" * 10


@given(st.lists(KEYS, max_size=60), st.integers(4, 20))
def test_a_field_is_never_wider_than_its_room_and_shows_its_cursor(keys: list[str], cells: int) -> None:
    field = _typed(TextField(), *keys)
    line = field.line(cells)
    assert width(line) <= max(cells, 2)
    assert any(style == "cursor" and text for text, style in line)


@given(st.text(max_size=300), st.integers(2, 40))
def test_wrapped_lines_fit_and_hold_every_visible_character(text: str, cells: int) -> None:
    lines = wrap(text, cells)
    assert all(cell_len(line) <= cells for line in lines)
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for line in lines for character in line)
    assert "".join("".join(lines).split()) == "".join("".join(printable_lines(text)).split())


def test_words_are_kept_whole_where_they_fit() -> None:
    assert wrap("SELECT abalance FROM accounts\nWHERE aid = 1", 16) == [
        "SELECT abalance",
        "FROM accounts",
        "WHERE aid = 1",
    ]
    assert wrap("a" * 10, 4) == ["aaaa", "aaaa", "aa"]
    assert [plain_text(line) for line in labelled("why", "one two three", 12, label_cells=5)] == [
        "why  one two",
        "     three",
    ]


def _form(spec: LoadSpec | None = None) -> LoadForm:
    return LoadForm(PROFILES, spec or LoadSpec())


def _press(form: LoadForm, *keys: str) -> LoadForm:
    names = {"+": "plus", "-": "minus"}
    for key in keys:
        form.press(names.get(key, key), key if len(key) == 1 else None)
    return form


def test_a_form_gives_back_the_spec_it_was_filled_with() -> None:
    spec = LoadSpec("select-only", 16, 4, 300, 2500.5, "simple")
    assert _form(spec).spec() == spec
    assert _form(LoadSpec("tpcb-like", 8)).spec() == LoadSpec("tpcb-like", 8)


def test_typing_changes_the_field_in_focus() -> None:
    form = _press(_form(), "down", "backspace", "1", "6", "tab", "2", "down", "6", "0", "down", "5", ".", "5")
    assert form.spec() == LoadSpec("tpcb-like", 16, 2, 60, 5.5, "prepared")


def test_plus_and_minus_double_and_halve() -> None:
    form = _press(_form(), "down", "+", "+")
    assert form.spec().clients == 32
    assert _press(form, "-", "-", "-", "-", "-", "-").spec().clients == 1


def test_another_profile_brings_its_own_clients_and_protocol() -> None:
    form = _press(_form(LoadSpec(clients=3, duration_s=60)), "right")
    assert form.spec() == LoadSpec("select-only", 32, 0, 60, None, "simple")


def test_letters_are_not_typed_into_numbers() -> None:
    assert not _press(_form(), "down").press("x", "x")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["down", "backspace"], "clients: a number is missing"),
        (["down", "backspace", "0"], "clients must be at least 1"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(keys: list[str], words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        _press(_form(), *keys).spec()


def test_an_empty_field_says_what_it_means() -> None:
    shown = "\n".join(plain_text(line) for line in _form().lines(UNICODE))
    assert "until stopped" in shown
    assert "unlimited" in shown


def test_a_line_of_a_plan_goes_on_further_right_than_it_begins() -> None:
    plan = "   ->  Nested Loop  (cost=0.00..1418273943.62 rows=25002113267 width=0)"
    lines = [plain_text(line) for line in hanging(plan, 50)]
    assert lines[0].startswith("   ->  Nested Loop")
    assert all(line.startswith(" " * 9) for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == " ".join(plan.split())


@given(st.text(max_size=200), st.integers(4, 60))
def test_hanging_lines_fit_and_hold_every_visible_character(text: str, cells: int) -> None:
    lines = [plain_text(line) for line in hanging(text, cells)]
    assert all(cell_len(line) <= cells for line in lines)
    assert "".join("".join(lines).split()) == "".join("".join(printable_lines(text)).split())
