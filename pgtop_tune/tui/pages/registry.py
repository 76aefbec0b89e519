"""The pages there are, in the order of their keys. A page is one row here, and is imported when it is first opened."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from pgtop_tune.tui.pages.page import Page

DASHBOARD_KEY: Final = "1"
DASHBOARD_ID: Final = "dashboard"
DASHBOARD_NAME: Final = "dash"
POOLERS_KEY: Final = "0"


class PageRow(Struct, frozen=True):
    """What keys and footers need to know of a page; the same words stand in its module.

    Attributes:
        key: As `Page.key`.
        id: As `Page.id`.
        title: As `Page.title`.
        module: Of this package; its `PAGE` is the page.
    """

    key: str
    id: str
    title: str
    module: str

    @property
    def page(self) -> Page:
        """The page itself."""
        found: Page = import_module(f"pgtop_tune.tui.pages.{self.module}").PAGE
        return found


PAGES: Final = (
    PageRow("2", "sessions", "sessions", "sessions"),
    PageRow("3", "waits", "waits", "waits"),
    PageRow("4", "locks", "locks", "locks"),
    PageRow("5", "statements", "statements", "statements"),
    PageRow("6", "io", "io/wal", "io"),
    PageRow("7", "host", "host", "host"),
    PageRow("8", "tables", "tables", "relations"),
    PageRow("9", "repl", "repl", "replication"),
    PageRow(POOLERS_KEY, "poolers", "pools", "poolers"),
)

NAMES: Final = ((DASHBOARD_KEY, DASHBOARD_NAME), *((row.key, row.title) for row in PAGES))
"""Key and name of every screen, for footers."""


def page_of(name: str) -> Page:
    """The page with that id.

    Raises:
        KeyError: There is none.
    """
    for row in PAGES:
        if row.id == name:
            return row.page
    raise KeyError(name)


def all_pages() -> tuple[Page, ...]:
    """Every page, in the order of the keys."""
    return tuple(row.page for row in PAGES)
