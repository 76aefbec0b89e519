"""Pictures of a screen of canvases straight to the terminal, past Textual's compositor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.screen import Screen

from pgtop_tune.tui.terminal.textual_private import driver_of, one_update, regions_in_view
from pgtop_tune.tui.terminal.thrifty_driver import ThriftyDriver
from pgtop_tune.tui.widgets.canvas import LineCanvas
from pgtop_tune.tui.widgets.lines import Line


def shown_straight(
    screen: Screen[Any], canvases: Mapping[str, LineCanvas], drawn: Mapping[str, Sequence[Line]]
) -> bool:
    """Shows the lines of canvases as wide as the screen; through Textual the screen's thread takes a fifth longer.

    Returns:
        False where nothing was done: while Textual is about to paint this screen, something else than the canvases is
        on it, or the terminal may show anything.
    """
    driver = driver_of(screen.app)
    if not isinstance(driver, ThriftyDriver) or not driver.is_known:
        return False
    regions = regions_in_view(screen)
    if not regions or not regions.keys() <= set(canvases.values()):
        return False
    changed = []
    for name, lines in drawn.items():
        canvas = canvases[name]
        rows, region = canvas.take(lines), regions.get(canvas)
        if rows and region is not None:
            changed += [(region.y + y, row) for y, row in zip(rows, canvas.rows(rows), strict=True)]
    with one_update(screen.app):
        driver.paint(changed, screen.app.console)
    return True
