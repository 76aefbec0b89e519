"""Themes: complete, readable, and what is wrong in a theme of the user's own is said all at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from rich.color import Color
from rich.style import Style
from textual.app import App, ComposeResult
from textual.widgets import Input, Label

from pgtop_tune.base import paths
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.waits import QUEUE
from pgtop_tune.tui.palette import DEFAULT, PaletteTheme, choose, load_themes, shipped_themes
from pgtop_tune.tui.widgets.lines import PLAIN, STYLES
from pgtop_tune.tui.widgets.phrase import wait_style

SHIPPED = shipped_themes()
GROUNDS = {
    True: ["#000000", "#121212", "#1e1e1e", "#300a24", "#002b36", "#282a36", "#282c34"],
    False: ["#ffffff", "#fafafa", "#f5f5f5", "#fdf6e3", "#eff1f5"],
}
"""Where a theme may stand, by whether it is dark: what terminals and their best known schemes have behind the text."""
MINIMAL = 'name = "mine"\nextends = "dark"\n'


@pytest.fixture
def own_themes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    directory = tmp_path / "pgtop-tune" / "themes"
    directory.mkdir(parents=True)
    return directory


def luminance(rgb: tuple[int, int, int]) -> float:
    linear = [c / 12.92 if (c := part / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for part in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """WCAG 2.2, success criterion 1.4.3."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def fixed_rgb(color: Color | None) -> tuple[int, int, int] | None:
    """The colour where it does not depend on the terminal's own sixteen."""
    if color is None or color.is_default or (color.number is not None and color.number < 16):
        return None
    return tuple(color.get_truecolor())  # type: ignore[return-value]


def test_six_themes_are_shipped_the_default_first() -> None:
    assert list(SHIPPED) == [DEFAULT, "ansi-dark", "ansi-light", "high-contrast", "light", "mono"]


@pytest.mark.parametrize("theme", SHIPPED.values(), ids=list(SHIPPED))
def test_a_shipped_theme_knows_every_style(theme: PaletteTheme) -> None:
    assert set(theme.spans) == {*STYLES, PLAIN}
    assert theme.description


@pytest.mark.parametrize("theme", SHIPPED.values(), ids=list(SHIPPED))
def test_fixed_colours_are_readable_on_every_ground_they_may_stand_on(theme: PaletteTheme) -> None:
    pale = [
        f"{name} on {ground}: {found:.2f}"
        for ground in GROUNDS[theme.dark]
        for name, style in theme.spans.items()
        if style is not None and (ink := fixed_rgb(style.color)) is not None
        if (found := contrast(ink, fixed_rgb(style.bgcolor) or tuple(Color.parse(ground).get_truecolor()))) < 4.5
    ]
    assert not pale


@pytest.mark.parametrize("name", ["dark", "light", "ansi-dark", "ansi-light", "mono"])
def test_plain_text_and_grounds_are_the_terminals_own(name: str) -> None:
    spans = SHIPPED[name].spans
    assert spans[PLAIN] is None
    assert all(style is None or style.bgcolor is None for style in spans.values())


def test_high_contrast_sets_every_ground() -> None:
    assert all(style is not None and style.bgcolor is not None for style in SHIPPED["high-contrast"].spans.values())


def test_mono_has_no_colours_and_still_tells_the_important_apart() -> None:
    spans = SHIPPED["mono"].spans
    assert all(style is None or (style.color is None and style.bgcolor is None) for style in spans.values())
    assert len({str(spans[name]) for name in (PLAIN, "dim", "warning", "critical", "cursor")}) == 5


@pytest.mark.parametrize("theme", SHIPPED.values(), ids=list(SHIPPED))
def test_the_important_is_told_apart_in_every_theme(theme: PaletteTheme) -> None:
    assert len({str(theme.spans[name]) for name in (PLAIN, "dim", "warning", "critical", "cursor")}) == 5


@pytest.mark.parametrize("name", list(SHIPPED))
async def test_textuals_own_widgets_take_every_theme(name: str) -> None:
    class Dialog(App[None]):
        def compose(self) -> ComposeResult:
            yield Input("x")
            yield Label("y")

    app = Dialog()
    for theme in SHIPPED.values():
        app.register_theme(theme)
    async with app.run_test(size=(40, 10)) as pilot:
        app.theme = name
        await pilot.pause()
        assert app.current_theme.name == name


def test_a_users_theme_takes_what_it_does_not_say_from_another(own_themes: Path) -> None:
    (own_themes / "mine.toml").write_text(MINIMAL + '[styles]\nwarning = "bold #ff8800"\n')
    themes = load_themes().by_name
    assert themes["mine"].spans["warning"] == Style.parse("bold #ff8800")
    assert themes["mine"].spans["critical"] == themes["dark"].spans["critical"]
    assert themes["mine"].primary == themes["dark"].primary


def test_a_users_theme_replaces_a_shipped_one_of_that_name(own_themes: Path) -> None:
    (own_themes / "light.toml").write_text('name = "light"\nextends = "ansi-light"\n')
    assert load_themes().by_name["light"].spans == SHIPPED["ansi-light"].spans


def test_everything_wrong_is_said_at_once(own_themes: Path) -> None:
    (own_themes / "a.toml").write_text(
        MINIMAL
        + 'colour = 1\n[styles]\nwarnung = "red"\ncritical = "bold perhaps"\ndim = 3\n[widgets]\nprimary = "#zz"\n'
        + '[variables]\nborder = "nowhere"\nblock-cursor-text-style = "loud"\n'
    )
    (own_themes / "b.toml").write_text("not toml")
    (own_themes / "c.toml").write_text('name = "other"\nextends = "nobody"\ndark = 1\n')
    themes = load_themes()
    with pytest.raises(UsageProblem) as caught:
        choose(themes, "mine", DEFAULT)
    message = caught.value.message
    for words in (
        "a.toml", "unknown key colour", "unknown style warnung", "bold perhaps", "styles.dim is not a string", "#zz",
        "nowhere", "loud", "b.toml", "c.toml", 'extends "nobody"', "dark must be",
    ):  # fmt: skip
        assert words in message
    assert caught.value.hint == "themes are: " + ", ".join(SHIPPED)


def test_what_is_broken_is_left_out_and_spoils_no_other(own_themes: Path) -> None:
    (own_themes / "ansi-dark.toml").write_text('name = "ansi-dark"\nbase = "perhaps"\n')
    (own_themes / "dark.toml").write_text('name = "dark"\nextends = "dark"\n')
    (own_themes / "empty.toml").write_text("")
    (own_themes / "deep.toml").write_text("a = " + "[" * 100_000)
    (own_themes / "folder.toml").mkdir()
    (own_themes / "mine.toml").write_text(MINIMAL)
    os.mkfifo(own_themes / "pipe.toml")
    (own_themes / "zero.toml").symlink_to("/dev/zero")
    themes = load_themes()
    assert [Path(file).name for file in sorted(themes.broken)] == [
        "ansi-dark.toml", "dark.toml", "deep.toml", "empty.toml", "folder.toml", "pipe.toml", "zero.toml",
    ]  # fmt: skip
    assert {name: theme.spans for name, theme in themes.by_name.items() if name != "mine"} == {
        name: theme.spans for name, theme in SHIPPED.items()
    }
    assert themes.by_name["mine"].spans == SHIPPED["dark"].spans


@pytest.mark.parametrize("broken", ["dark.toml", "mono.toml", "light.toml"])
@pytest.mark.parametrize("no_color", [False, True])
def test_a_broken_file_of_ours_does_not_end_the_program(
    broken: str, no_color: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(paths.shipped_directory("themes", "themes"), tmp_path / "themes")
    (tmp_path / "themes" / broken).write_text("not toml")
    monkeypatch.setattr(paths, "shipped_directory", lambda installed, beside: tmp_path / installed)
    themes = load_themes(no_color)
    assert Path(broken).stem not in themes.by_name
    assert choose(themes, "", "mono" if no_color else DEFAULT) in themes.by_name
    if no_color:
        spans = (style for theme in themes.by_name.values() for style in theme.spans.values() if style is not None)
        assert all(style.color is None and style.bgcolor is None for style in spans)


def test_no_color_leaves_attributes_only(own_themes: Path) -> None:
    themes = load_themes(no_color=True).by_name
    assert all(theme.spans == SHIPPED["mono"].spans for theme in themes.values())


@pytest.mark.parametrize("theme", SHIPPED.values(), ids=list(SHIPPED))
def test_work_and_waiting_for_a_processor_do_not_look_the_same(theme: PaletteTheme) -> None:
    assert wait_style("CPU") != wait_style(QUEUE)
    assert str(theme.spans[wait_style("CPU")]) != str(theme.spans[wait_style(QUEUE)])


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast"])
def test_the_queue_for_a_processor_has_a_colour_no_wait_class_has(name: str) -> None:
    spans = SHIPPED[name].spans
    classes = ("CPU", "IO", "Lock", "LWLock", "Client", "IPC", "Timeout")
    queue = spans[wait_style(QUEUE)]
    assert queue is not None
    assert queue.color not in [style.color for each in classes if (style := spans[wait_style(each)]) is not None]


@pytest.mark.parametrize("theme", SHIPPED.values(), ids=list(SHIPPED))
def test_a_full_block_is_not_drawn_as_an_empty_one(theme: PaletteTheme) -> None:
    drawn_with_blocks = [name for name in STYLES if name.startswith(("heat-", "series-", "wait-", "cpu"))]
    assert not [name for name in drawn_with_blocks if (style := theme.spans[name]) is not None and style.reverse]
