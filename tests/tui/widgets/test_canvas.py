"""The canvas: the right text, in the theme's styles, and only what changed is painted again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot

from pgtop_tune.tui.palette import shipped_themes
from pgtop_tune.tui.widgets.canvas import LineCanvas
from pgtop_tune.tui.widgets.lines import ASCII, Line, of_map, on

WIDTH, HEIGHT = 20, 4
HOSTILE = "\x1b[31mred\x1b]52;c;aGk=\x07\x9b2J\u202egnp[bold]\n\t\x7f\udc80"


class Counting(LineCanvas):
    """Remembers which regions were asked to be painted again."""

    def __init__(self) -> None:
        super().__init__()
        self.repainted: list[Region] = []

    def refresh(self, *regions: Region, **how: bool) -> Counting:  # type: ignore[override]
        if regions:
            self.repainted.extend(regions)
        return super().refresh(*regions, **how)


class Screenful(App[None]):
    CSS = "LineCanvas { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self.canvas = Counting()
        for theme in shipped_themes().values():
            self.register_theme(theme)
        self.theme = "dark"

    def compose(self) -> ComposeResult:
        yield self.canvas


async def shown(pilot: Pilot[None], lines: Sequence[Line]) -> list[str]:
    canvas = pilot.app.query_one(Counting)
    canvas.show(lines)
    await pilot.pause()
    return [canvas.render_line(y).text for y in range(canvas.size.height)]


async def test_lines_are_cut_and_padded_to_the_widget() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        lines: list[Line] = [(("short", ""),), (("much longer ", "dim"), ("than the widget", "")), (("漢字" * 9, ""),)]
        assert await shown(pilot, lines) == [
            "short               ",
            "much longer than the",
            "漢字漢字漢字漢字漢字",
            " " * WIDTH,
        ]


async def test_a_wide_character_is_not_cut_in_two() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        assert (await shown(pilot, [(("a" + "漢" * 10, ""),)]))[0] == "a" + "漢" * 9 + " "


async def test_a_shade_is_nearer_to_the_ground_and_none_in_themes_without_shades() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        for theme, order in ("dark", (1, 6, 8)), ("light", (8, 6, 1)), ("high-contrast", (1, 6, 8)):
            shades = [sum(await ground(pilot, theme, of_map("series-1", step)) or ()) for step in order]
            assert shades == sorted(set(shades)), theme
        assert await colours(pilot, "ansi-dark", of_map("series-1", 1)) == await colours(pilot, "ansi-dark", "series-1")
        assert await colours(pilot, "mono", of_map("series-1", 1)) is None


async def test_an_area_is_of_its_own_colour_alone_also_where_all_text_stands_on_a_ground() -> None:
    """In high-contrast the upper edges of an area stood on a field of white, the colour of plain text."""
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        for theme in ("dark", "high-contrast", "ansi-dark"):
            edge = await colours(pilot, theme, "series-1")
            assert await ground(pilot, theme, "series-1") == ((0, 0, 0) if theme == "high-contrast" else None)
            assert await colours(pilot, theme, on("series-1", "series-1", "▓")) == edge
            assert pilot.app.query_one(Counting).render_line(0).text[0] == "█", "a ground may be less bright than ink"
            assert await ground(pilot, theme, on("dim", "series-1")) == edge
        assert (await colours(pilot, "mono", on("series-1", "series-1", "▓"))) is None
        assert pilot.app.query_one(Counting).render_line(0).text[0] == "▓"


async def test_an_area_in_a_style_with_a_ground_of_its_own_has_the_colour_of_that_ground() -> None:
    """In high-contrast a load that stood still was a white area with red edges."""
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        pilot.app.theme = "high-contrast"
        await shown(pilot, [(("█▅ ", "critical"), (" 9 s", "critical"), ("▂", on("series-1", "critical")))])
        alarm = shipped_themes()["high-contrast"].spans["critical"]
        assert alarm is not None
        area, text, edge, *_ = [segment.style or Style() for segment in pilot.app.query_one(Counting).render_line(0)]
        assert (area.color, area.bgcolor) == (alarm.bgcolor, Color.parse("color(16)"))
        assert text == alarm
        assert edge.bgcolor == alarm.bgcolor


async def test_a_cell_of_a_heat_map_is_filled_and_keeps_its_character_where_there_are_no_shades() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        assert await shown(pilot, [(("▒", of_map("series-1", 4)),)]) == [" " * WIDTH] * HEIGHT
        cell = next(iter(pilot.app.query_one(Counting).render_line(0))).style
        assert cell is not None
        assert cell.bgcolor is not None
        for theme in ("ansi-dark", "mono"):
            pilot.app.theme = theme
            assert (await shown(pilot, [(("▒", of_map("series-1", 4)),)]))[0].startswith("▒ ")


async def colours(pilot: Pilot[None], theme: str, style: str) -> tuple[int, int, int] | None:
    """Red, green and blue of a character in that style."""
    pilot.app.theme = theme
    await shown(pilot, [(("x", style),)])
    drawn = next(iter(pilot.app.query_one(Counting).render_line(0))).style
    return None if drawn is None or drawn.color is None else tuple(drawn.color.get_truecolor())


async def ground(pilot: Pilot[None], theme: str, style: str) -> tuple[int, int, int] | None:
    """Red, green and blue behind a character in that style."""
    await colours(pilot, theme, style)
    drawn = next(iter(pilot.app.query_one(Counting).render_line(0))).style
    return None if drawn is None or drawn.bgcolor is None else tuple(drawn.bgcolor.get_truecolor())


async def test_only_changed_lines_are_painted_again() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        await shown(pilot, [(("a", ""),), (("b", ""),), (("c", ""),)])
        canvas = pilot.app.query_one(Counting)
        canvas.repainted.clear()
        await shown(pilot, [(("a", ""),), (("x", ""),), (("c", ""),), (("d", ""),)])
        assert [region.y for region in canvas.repainted] == [1, 3]
        canvas.repainted.clear()
        await shown(pilot, [(("a", ""),), (("x", ""),), (("c", ""),), (("d", ""),)])
        assert canvas.repainted == []


async def test_lines_that_went_away_are_blanked() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        await shown(pilot, [(("a", ""),)] * HEIGHT)
        assert await shown(pilot, [(("a", ""),)]) == [f"{'a':{WIDTH}}", *[" " * WIDTH] * 3]


async def test_lines_below_the_widget_do_not_matter_until_it_grows() -> None:
    async with Screenful().run_test(size=(WIDTH, 2)) as pilot:
        await shown(pilot, [((str(y), ""),) for y in range(5)])
        await pilot.resize_terminal(10, 4)
        await pilot.pause()
        canvas = pilot.app.query_one(Counting)
        assert [canvas.render_line(y).text for y in range(4)] == [f"{y:<10}" for y in range(4)]


async def test_plain_text_has_no_style_and_others_have_the_themes() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        await shown(pilot, [(("plain", ""), ("warn", "warning"))])
        segments = list(pilot.app.query_one(Counting).render_line(0))
        assert [(segment.text.strip(), segment.style) for segment in segments] == [
            ("plain", None),
            ("warn", Style.parse("bold color(221)")),
            ("", None),
        ]


@pytest.mark.parametrize("theme", ["dark", "high-contrast"])
async def test_an_edge_stands_on_the_other_area_s_colour_and_without_colours_as_its_filling(theme: str) -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        app = pilot.app
        assert isinstance(app, Screenful)
        app.theme = theme
        await pilot.pause()
        app.canvas.show([(("▂", on("series-3", "series-4", "▓")),)])
        (edge, *_) = app.canvas.render_line(0)
        assert edge.text == "▂"
        assert edge.style is not None
        spans = shipped_themes()[theme].spans
        assert (edge.style.color, edge.style.bgcolor) == (spans["series-3"].color, spans["series-4"].color)
        app.theme = "mono"
        await pilot.pause()
        assert app.canvas.render_line(0).text.rstrip() == "▓"


async def test_a_new_theme_paints_everything_in_its_styles() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        await shown(pilot, [(("warn", "warning"),)])
        pilot.app.theme = "high-contrast"
        await pilot.pause()
        first, rest = pilot.app.query_one(Counting).render_line(0)
        assert first.style == Style.parse("bold color(226) on color(16)")
        assert rest.style == Style.parse("color(231) on color(16)")


async def test_a_theme_that_knows_no_lines_leaves_them_plain() -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        await shown(pilot, [(("warn", "warning"),)])
        pilot.app.theme = "nord"
        await pilot.pause()
        assert {segment.style for segment in pilot.app.query_one(Counting).render_line(0)} == {None}


async def test_foreign_text_is_shown_and_not_obeyed() -> None:
    async with Screenful().run_test(size=(80, HEIGHT)) as pilot:
        text = (await shown(pilot, [((HOSTILE, "strong"),)]))[0]
        assert text.rstrip().isprintable()
        assert "[bold]" in text
        assert "␛[31mred" in text


@given(st.lists(st.tuples(st.text(max_size=30), st.sampled_from(["", "dim"])), max_size=6), st.integers(1, 40))
def test_every_line_is_exactly_as_wide_as_the_widget(line: list[tuple[str, str]], cells: int) -> None:
    row = LineCanvas()._row(tuple(line), cells)
    assert sum(cell_len(text) for text, _ in row) == cells
    assert not any(char < " " or "\x7f" <= char <= "\x9f" for text, _ in row for char in text)


def test_with_ascii_only_signs_in_our_words_have_stand_ins() -> None:
    row = LineCanvas(ASCII)._row((("1GB→2GB ×8 − Δ/Δt … \x1b", "dim"),), 24)
    assert "".join(text for text, _ in row).rstrip() == "1GB>2GB x8 - d/dt ~ ?"


@pytest.mark.parametrize("region", [Region(0, 0, WIDTH, 2), Region(3, 1, 5, 2)])
async def test_a_part_of_it_can_be_asked_for(region: Region) -> None:
    async with Screenful().run_test(size=(WIDTH, HEIGHT)) as pilot:
        await shown(pilot, [(("0123456789", ""), ("abcdefghij", "dim"))] * HEIGHT)
        strips = pilot.app.query_one(Counting).render_lines(region)
        assert [strip.text for strip in strips] == ["0123456789abcdefghij"[region.x : region.right]] * region.height
