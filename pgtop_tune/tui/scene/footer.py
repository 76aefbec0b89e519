"""The last line: pages and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, Span
from pgtop_tune.tui.widgets.phrase import Phrase, fitting, padded

_ALWAYS = ("help", "quit")
ROOMY: Final = 110
"""From here on the pages are named one by one."""
VERY_ROOMY: Final = 150
"""The same where the keys that move through time come first: they are needed more than names."""


class PageNames(Struct, frozen=True):
    """The pages there are.

    Attributes:
        names: (key, name) rows.
        here: Key of the one in view.
        named_from: Cells from which on they are named one by one.
    """

    names: Sequence[tuple[str, str]] = ()
    here: str = ""
    named_from: int = ROOMY


NO_PAGES: Final = PageNames()


def footer_lines(
    keys: Sequence[tuple[str, str]], width: int, height: int, glyphs: Glyphs, pages: PageNames = NO_PAGES
) -> list[Line]:
    """As many keys as fit; those for help and leaving always do.

    Args:
        keys: (key, word) rows, most important first (`actions.footer_keys`).
        width: Cells.
        height: 1.
        glyphs: Characters.
        pages: Named before the keys where there is room.
    """
    phrases = [
        Phrase(((key, "key"), (f" {word}", PLAIN)), 0 if word in _ALWAYS else rank)
        for rank, (key, word) in enumerate(keys, 1)
    ]
    if pages.names:
        phrases.insert(0, Phrase(_named(pages) if width >= pages.named_from else _counted(pages)))
    return [padded(((" ", PLAIN), *fitting(phrases, width - 2, ("  ", PLAIN))), width)][:height]


def _named(pages: PageNames) -> Line:
    spans: list[Span] = []
    for key, name in pages.names:
        gap = " " if spans else ""
        if key == pages.here:
            spans += [(gap, PLAIN), (f"{key} {name}", "title")]
        else:
            spans += [(gap + key, "key"), (f" {name}", PLAIN)]
    return tuple(span for span in spans if span[0])


def _counted(pages: PageNames) -> Line:
    here = next((name for key, name in pages.names if key == pages.here), "")
    keys = [key for key, _ in pages.names]
    last = keys[-1] if keys[-1] > keys[0] else f"{keys[-2]},{keys[-1]}"
    return (f"{keys[0]}-{last}", "key"), (f" {here}", "title")
